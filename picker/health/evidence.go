package health

import "time"

// Cause names what speaks against an endpoint.
type Cause uint8

// Causes.
const (
	None    Cause = iota
	Refused       // connections are refused
	Silent        // the metrics page does not answer, and nothing else is heard
	Stalled       // requests are past their time and nothing moves
	Failed        // answers of status 500 and above, errors inside of streams
	Broken        // connections that broke before the answer began
	Cut           // answers that ended in the middle, or had not begun in time when their clients left
	Late          // answers later than the prediction and the pool explain
	Slow          // far fewer tokens per second and sequence than before
	Probe         // probes fail
	// The causes that follow are outcomes that the protocol allows. They speak against an
	// endpoint as far as its peers' outcomes differ. Replicas exchange causes by number: new
	// ones come last.
	Declined // answers of status 3xx and 4xx that the client did not cause elsewhere
	Invalid  // answers of status 200 without content, aborted, or of another model
	Halted   // whole answers that stopped in the middle of their body
	NumCauses
)

var causeNames = [NumCauses]string{"none", "refused", "silent", "stalled", "failed", "broken", "cut", "late", "slow", "probe", "declined", "invalid", "halted"}

// String returns the cause's name, as it is in metrics.
func (c Cause) String() string {
	if c >= NumCauses {
		return causeNames[None]
	}
	return causeNames[c]
}

// Certain reports whether the evidence cannot be mistaken: such endpoints stay out
// as long as any other is left.
func (c Cause) Certain() bool { return c == Refused }

// Severities: what clients get of an endpoint that suffers from a cause.
const (
	tardy      = iota // answers, late
	halves            // the beginnings of answers
	nothing           // no answers
	severities = iota
)

func (c Cause) severity() int {
	switch c {
	case Late, Slow:
		return tardy
	case Cut, Halted:
		return halves
	default:
		return nothing
	}
}

// counted are the causes that come as counts of requests, with the smallest
// share of requests at which they are usual.
var counted = [...]struct {
	cause Cause
	usual float64
}{{Failed, .01}, {Broken, .01}, {Cut, .1}, {Late, .02}, {Declined, .05}, {Invalid, .05}, {Halted, .01}}

// relative reports whether the cause is an outcome that only differs from those of the peers.
// A probe decides then: one that passes shows that the requests were at fault.
func (c Cause) relative() bool { return c == Declined || c == Invalid }

// Counted reports whether the cause comes as counts of requests.
func (c Cause) Counted() bool {
	for _, k := range counted {
		if k.cause == c {
			return true
		}
	}
	return false
}

// Never stands for an age of something that has not happened.
const Never = time.Duration(1<<62 - 1)

// Evidence is what one replica has seen of one endpoint. Counts only grow while
// the replica lives; everything else is as of the moment when it was taken.
type Evidence struct {
	Good   uint64            // requests that moved or ended in time
	Bad    [NumCauses]uint64 // requests that did not, by cause
	Passed uint64            // probes that passed
	Missed uint64            // probes that were late
	Denied uint64            // probes that were answered with an error, or not at all

	Refused  bool          // at least two dials in a row were refused
	Answered time.Duration // since a page or a probe was last answered; Never
	Moved    time.Duration // since tokens or answers last came; Never
	InFlight int           // requests
	Overdue  int           // of them, those past their time
	Starved  bool          // none is, but for as long requests have waited, one after the other; Overdue is 1
	Twice    bool          // one of them has taken twice its time
	Slow     bool          // see Cause Slow
}

// unknown is the evidence of a replica that has seen nothing.
func unknown() Evidence { return Evidence{Answered: Never, Moved: Never} }

// later returns e as it stands after more time without news.
func (e Evidence) later(by time.Duration) Evidence {
	e.Answered, e.Moved = age(e.Answered, by), age(e.Moved, by)
	return e
}

func age(a, by time.Duration) time.Duration {
	if a >= Never-by {
		return Never
	}
	return a + by
}

// with returns what two replicas see together: counts add up, signs of life of
// either are believed.
func (e Evidence) with(o Evidence) Evidence {
	e.Good += o.Good
	for c := range e.Bad {
		e.Bad[c] += o.Bad[c]
	}
	e.Passed += o.Passed
	e.Missed += o.Missed
	e.Denied += o.Denied
	e.Refused = e.Refused || o.Refused
	e.Answered, e.Moved = min(e.Answered, o.Answered), min(e.Moved, o.Moved)
	e.InFlight += o.InFlight
	e.Overdue += o.Overdue
	e.Twice = e.Twice || o.Twice
	e.Starved = e.Starved || o.Starved
	e.Slow = e.Slow || o.Slow
	return e
}

// since returns e with only what was counted after old. Counts that went back
// are those of a replica that began anew.
func (e Evidence) since(old *Evidence) Evidence {
	e.Good = grown(e.Good, old.Good)
	for c := range e.Bad {
		e.Bad[c] = grown(e.Bad[c], old.Bad[c])
	}
	e.Passed, e.Missed, e.Denied = grown(e.Passed, old.Passed), grown(e.Missed, old.Missed), grown(e.Denied, old.Denied)
	return e
}

func grown(v, old uint64) uint64 {
	if v < old {
		return v
	}
	return v - old
}

// uncounted returns e without its counts.
func (e Evidence) uncounted() Evidence {
	e.Good, e.Bad, e.Passed, e.Missed, e.Denied = 0, [NumCauses]uint64{}, 0, 0, 0
	return e
}

// requests returns how many requests were judged.
func (e *Evidence) requests() float64 {
	n := float64(e.Good)
	for _, k := range counted {
		n += float64(e.Bad[k.cause])
	}
	return n
}
