package extproc

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
)

// Values of the label "by" of the served metric.
const (
	servedChosen    = "chosen"    // the endpoint that the picker named first
	servedNext      = "next"      // a further endpoint that it named
	servedElsewhere = "elsewhere" // one that it did not name
	servedUnknown   = "unknown"   // the proxy does not say
)

// ServedStatus compares the endpoints that have answered with those that were
// chosen, over all requests since the start.
type ServedStatus struct {
	Chosen    uint64 `json:"chosen"`
	Next      uint64 `json:"next"`      // a further destination that was named
	Elsewhere uint64 `json:"elsewhere"` // not named by the picker
	Unknown   uint64 `json:"unknown"`   // the proxy does not report it
	// Problem is the likely cause while the proxy mostly goes elsewhere.
	Problem string `json:"problem,omitempty"`
}

// servedTally counts who answered and notices when the proxy does not follow
// the picker. It is safe for concurrent use.
type servedTally struct {
	chosen, next, elsewhere, unknown atomic.Uint64

	// The window holds answers since it was opened, elsewhere of them in the
	// lower half.
	window   atomic.Uint64
	ignored  atomic.Bool  // most answers of the last window came from elsewhere
	multiple atomic.Bool  // lists of addresses were sent in it
	warned   atomic.Int64 // Unix nanoseconds of the last warning
}

const (
	servedWindow    = 100 // answers after which a new window is opened
	servedLeast     = 10  // answers that are enough for a judgement
	servedWarnEvery = time.Minute
)

// add counts one answer. sent are the addresses that the proxy was told. The
// result is the label of the metric; warn asks for a warning.
func (t *servedTally) add(sent []string, served string, now time.Time) (by string, warn bool) {
	if served == "" || len(sent) == 0 {
		t.unknown.Add(1)
		return servedUnknown, false
	}
	step := uint64(1) << 32
	switch i := slices.Index(sent, served); {
	case i == 0:
		t.chosen.Add(1)
		by = servedChosen
	case i > 0:
		t.next.Add(1)
		by = servedNext
	default:
		t.elsewhere.Add(1)
		by = servedElsewhere
		step++
	}
	if len(sent) > 1 {
		t.multiple.Store(true)
	}
	return by, t.judge(t.window.Add(step), now)
}

// judge looks at the window and reports whether a warning is due.
func (t *servedTally) judge(window uint64, now time.Time) bool {
	told, elsewhere := window>>32, window&(1<<32-1)
	if told < servedLeast {
		return false
	}
	ignored := 2*elsewhere >= told
	t.ignored.Store(ignored)
	if told >= servedWindow && t.window.CompareAndSwap(window, 0) {
		t.multiple.Store(false)
	}
	if !ignored {
		return false
	}
	last := t.warned.Load()
	return now.UnixNano()-last >= int64(servedWarnEvery) && t.warned.CompareAndSwap(last, now.UnixNano())
}

// problem returns the likely cause of answers from elsewhere, "" when the proxy
// follows the picker.
func (t *servedTally) problem() string {
	switch {
	case !t.ignored.Load():
		return ""
	case t.multiple.Load():
		return "the proxy does not go where the picker says: it may take a single address (see --gateway), " +
			"or know the endpoints under other addresses"
	default:
		return "the proxy does not go where the picker says: its cluster must take the destination from header or metadata " +
			wire.HeaderDestination + ", and know the endpoints by the same ip:port"
	}
}

// Served returns how well the proxies follow the picker.
func (p *Processor) Served() ServedStatus {
	t := &p.served
	return ServedStatus{
		Chosen: t.chosen.Load(), Next: t.next.Load(), Elsewhere: t.elsewhere.Load(), Unknown: t.unknown.Load(), Problem: t.problem(),
	}
}

// noteServed compares who answered with who was chosen, once per request.
func (st *stream) noteServed() {
	if st.decision == nil || st.back.status < 100 {
		return
	}
	by, warn := st.p.served.add(st.sent, st.back.served, st.p.opts.Now())
	st.p.metrics.served.WithLabelValues(by).Inc()
	if warn {
		st.p.opts.Log.Warn("answers come from endpoints that were not chosen", "problem", st.p.served.problem())
	}
}
