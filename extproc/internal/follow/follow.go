package follow

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
)

// Values of the label "by" of the served metric.
const (
	Chosen  = "chosen"  // the endpoint that the picker named first
	Next    = "next"    // another endpoint that it named
	Unnamed = "unnamed" // an endpoint that it did not name
	Unknown = "unknown" // not reported by the proxy
)

// Counter counts the serving endpoints and detects a proxy that ignores the picker's choice. It is
// safe for concurrent use.
type Counter struct {
	chosen, next, unnamed, unknown atomic.Uint64

	// span holds the number of answers since it was opened in its upper half, and those from
	// unnamed endpoints in its lower half.
	span     atomic.Uint64
	ignored  atomic.Bool  // most answers of the last window were from unnamed endpoints
	multiple atomic.Bool  // lists of addresses were sent in that window
	warned   atomic.Int64 // Unix nanoseconds of the last warning
}

const (
	perSpan   = 100 // answers per span
	least     = 10  // minimum answers for a verdict
	warnEvery = time.Minute
)

// Add counts one answer. sent are the addresses sent to the proxy. by is the metric label; warn
// requests a warning.
func (t *Counter) Add(sent []string, served string, now time.Time) (by string, warn bool) {
	if served == "" || len(sent) == 0 {
		t.unknown.Add(1)
		return Unknown, false
	}
	step := uint64(1) << 32
	switch i := slices.Index(sent, served); {
	case i == 0:
		t.chosen.Add(1)
		by = Chosen
	case i > 0:
		t.next.Add(1)
		by = Next
	default:
		t.unnamed.Add(1)
		by = Unnamed
		step++
	}
	if len(sent) > 1 {
		t.multiple.Store(true)
	}
	return by, t.judge(t.span.Add(step), now)
}

// judge evaluates the span and reports whether a warning is due.
func (t *Counter) judge(span uint64, now time.Time) bool {
	told, unnamed := span>>32, span&(1<<32-1)
	if told < least {
		return false
	}
	ignored := 2*unnamed >= told
	t.ignored.Store(ignored)
	if told >= perSpan && t.span.CompareAndSwap(span, 0) {
		t.multiple.Store(false)
	}
	if !ignored {
		return false
	}
	last := t.warned.Load()
	return now.UnixNano()-last >= int64(warnEvery) && t.warned.CompareAndSwap(last, now.UnixNano())
}

// Problem returns the likely cause of answers from unnamed endpoints, or "" if the proxy follows
// the picker.
func (t *Counter) Problem() string {
	switch {
	case !t.ignored.Load():
		return ""
	case t.multiple.Load():
		return "the proxy does not use the picker's destination: it may accept a single address only (see --gateway), " +
			"or know the endpoints under other addresses"
	default:
		return "the proxy does not use the picker's destination: its cluster must take the destination from header or metadata " +
			wire.HeaderDestination + ", and know the endpoints by the same ip:port"
	}
}

// Counts returns the number of answers by origin since the start.
func (t *Counter) Counts() (chosen, next, unnamed, unknown uint64) {
	return t.chosen.Load(), t.next.Load(), t.unnamed.Load(), t.unknown.Load()
}
