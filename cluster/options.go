package cluster

import (
	"log/slog"
	"time"
)

// Options configure a Node. Self.ID is required; the rest has defaults.
type Options struct {
	Self   Member // from NewMember; the Bus must use the same
	Bus    Bus    // nil means None
	Share  Share
	Logger *slog.Logger // nil discards
	// Now is a clock that never goes back; nil means the process's.
	Now func() time.Duration
	// Trouble names a member whose setup does not fit this replica's and says what
	// follows from it; "" when all fit. It is called with the Node's lock held, as
	// sinks are; nil means that none is looked for.
	ConfigMismatch func() (id, what string)
	// Aside names what is not shared, and why; "" when all is. It is called as Trouble is.
	NotShared func() string
	// Tuning holds the state machine's periods and limits. Its Self, Share
	// and Alone are ignored.
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
	o.Tuning.Self, o.Tuning.Share = o.Self, o.Share
	_, o.Tuning.Standalone = o.Bus.(None)
	return o
}
