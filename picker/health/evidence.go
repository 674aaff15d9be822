package health

import "time"

// Cause is the kind of evidence against an endpoint.
type Cause uint8

// Causes.
const (
	None    Cause = iota
	Refused       // connections are refused
	Silent        // the metrics page does not answer and there is no other sign of life
	Stalled       // requests are overdue and no answer makes progress
	Failed        // responses with status 500 or higher, errors within streams
	Broken        // connections that broke before the response began
	Cut           // responses truncated midway, or not started in time when the client left
	Late          // responses later than the prediction and the pool's delays explain
	Slow          // far fewer tokens per second and sequence than before
	Probe         // probes fail
	// The following causes are outcomes that the protocol allows. They count only as far as the
	// endpoint differs from its peers. Replicas exchange causes by number: append new ones.
	Declined // 3xx and 4xx responses that the same client does not get from other endpoints
	Invalid  // 200 responses that are empty, aborted, or of another model
	Halted   // non-streamed responses that stopped midway
	Short    // 200 responses much shorter than those of other endpoints to similar requests
	NumCauses
)

var causeNames = [NumCauses]string{"none", "refused", "silent", "stalled", "failed", "broken", "cut", "late", "slow", "probe", "declined", "invalid", "halted", "short"}

// String returns the cause's name as used in metrics.
func (c Cause) String() string {
	if c >= NumCauses {
		return causeNames[None]
	}
	return causeNames[c]
}

// Certain reports whether the evidence is hard. It keeps an endpoint out while any other endpoint
// is available.
func (c Cause) Certain() bool { return c == Refused }

// Severities of a cause, by its effect on clients.
const (
	tardy      = iota // complete but late answers
	halves            // truncated answers
	nothing           // no answers
	severities = iota
)

func (c Cause) severity() int {
	switch c {
	case Late, Slow:
		return tardy
	case Cut, Halted, Short:
		return halves
	default:
		return nothing
	}
}

// counted lists the causes that are counted per request, with the smallest failure share that is
// considered normal.
var counted = [...]struct {
	cause Cause
	usual float64
}{{Failed, .01}, {Broken, .01}, {Cut, .1}, {Late, .02}, {Declined, .05}, {Invalid, .05}, {Halted, .01}, {Short, .05}}

// relative reports whether the cause counts only by comparison with peers. A probe then decides: if
// it passes, the requests were at fault.
func (c Cause) relative() bool { return c == Declined || c == Invalid || c == Short }

// Counted reports whether the cause is counted per request.
func (c Cause) Counted() bool {
	for _, k := range counted {
		if k.cause == c {
			return true
		}
	}
	return false
}

// Never is the age of an event that has not happened.
const Never = time.Duration(1<<62 - 1)

// Evidence is one replica's observations of one endpoint. Counts only grow during the replica's
// lifetime. All other fields describe the moment of collection.
type Evidence struct {
	Good    uint64            // requests that progressed or ended in time
	Bad     [NumCauses]uint64 // failed requests by cause
	Passed  uint64            // probes that passed
	Missed  uint64            // probes that were late
	Denied  uint64            // probes that got an error or no answer
	Failing Question          // kind of the last failed request

	Refused  bool          // at least two dials in a row were refused
	Answered time.Duration // since the last answered page or probe; Never
	Moved    time.Duration // since the last token or answer; Never
	InFlight int           // requests
	Overdue  int           // in-flight requests that are overdue
	Starved  bool          // no single request is overdue, but consecutive requests have waited that long without progress; Overdue is 1
	Twice    bool          // some request has taken twice its limit
	Slow     bool          // see cause Slow
}

// Counts are the counts of an Evidence.
type Counts struct {
	good, passed, missed, denied uint64
	bad                          [NumCauses]uint64
}

// Counts returns the counts of e. They differ between two observations if there was news.
func (e *Evidence) Counts() Counts {
	return Counts{e.Good, e.Passed, e.Missed, e.Denied, e.Bad}
}

// unknown returns the evidence of a replica without observations.
func unknown() Evidence { return Evidence{Answered: Never, Moved: Never} }

// later returns e aged by a duration without news.
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

// with returns the combined evidence of two replicas. Counts add up; the most recent sign of life
// of either replica counts.
func (e Evidence) with(o Evidence) Evidence {
	e.Good += o.Good
	for c := range e.Bad {
		e.Bad[c] += o.Bad[c]
	}
	e.Passed += o.Passed
	e.Missed += o.Missed
	e.Denied += o.Denied
	e.Failing = max(e.Failing, o.Failing)
	e.Refused = e.Refused || o.Refused
	e.Answered, e.Moved = min(e.Answered, o.Answered), min(e.Moved, o.Moved)
	e.InFlight += o.InFlight
	e.Overdue += o.Overdue
	e.Twice = e.Twice || o.Twice
	e.Starved = e.Starved || o.Starved
	e.Slow = e.Slow || o.Slow
	return e
}

// since returns e with only the counts added after old. A count that decreased belongs to a replica
// that restarted.
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

// requests returns the number of judged requests.
func (e *Evidence) requests() float64 {
	n := float64(e.Good)
	for _, k := range counted {
		n += float64(e.Bad[k.cause])
	}
	return n
}
