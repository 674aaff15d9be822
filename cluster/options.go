package cluster

import (
	"log/slog"
	"time"

	"github.com/grapevine-epp/grapevine/internal/watchdog"
)

// Options configure a Node. Self.ID is required; everything else has defaults.
type Options struct {
	Self   Member // from NewMember; the Bus must use the same value
	Bus    Bus    // nil means None
	Share  Share
	Logger *slog.Logger   // nil discards
	Watch  *watchdog.Loop // of the node's loop; nil: not watched
	// Now is a monotonic clock; nil means the process's.
	Now func() time.Duration
	// ConfigMismatch returns a member whose configuration does not match this replica's, and the
	// consequence; "" if all match. It is called without the Node's lock. Nil
	// disables the check.
	ConfigMismatch func() (id, what string)
	// NotShared returns the states that are not shared and the reason, or "". It is called like
	// ConfigMismatch.
	NotShared func() string
	// Tuning holds the state machine's periods and limits. Its Self, Share and Standalone are
	// ignored.
	Tuning Tuning
}

func (o Options) withDefaults() Options {
	if o.Bus == nil {
		o.Bus = None{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.ConfigMismatch == nil {
		o.ConfigMismatch = func() (string, string) { return "", "" }
	}
	if o.NotShared == nil {
		o.NotShared = func() string { return "" }
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() time.Duration { return time.Since(start) }
	}
	if o.Tuning.Wall == nil {
		o.Tuning.Wall = func() uint64 { return uint64(max(time.Now().UnixMicro(), 0)) }
	}
	o.Tuning.Self, o.Tuning.Share = o.Self, o.Share
	_, o.Tuning.Standalone = o.Bus.(None)
	return o
}
