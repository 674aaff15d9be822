package health

import (
	"fmt"
	"time"
)

// State is how far an endpoint is trusted.
type State uint8

// States.
const (
	Healthy   State = iota
	Suspect         // gets a trickle of requests
	Out             // gets probes only
	Probing         // out, and probes have begun to pass
	Returning       // its share of requests grows back
	NumStates
)

var stateNames = [NumStates]string{"healthy", "suspect", "out", "probing", "returning"}

// String returns the state's name, as it is in metrics.
func (s State) String() string {
	if s >= NumStates {
		return "unknown"
	}
	return stateNames[s]
}

// View is what is known of one endpoint's health. It is a plain value.
type View struct {
	State State
	Cause Cause     // of the state; None while healthy
	Since time.Time // when the state began
	// Share is in how many of 1,000 decisions the endpoint may be a candidate.
	Share     uint32
	Reached   bool // some replica has had a sign of life of it
	Restarted bool // its engine has started again while it was out
	// Overruled says that soft evidence is ignored, since it speaks against
	// most of the group: the endpoint is used although its state is bad.
	Overruled bool

	Score  float64       // log-likelihood that it is sick, from answers
	Need   int           // probes in a row that must pass before it returns
	Passed int           // of them, those that have
	Flaps  int           // returns that did not last, of which each makes the next one slower
	Start  time.Duration // that its share takes to grow back
	Seen   Evidence
}

// Unreached is the word for an endpoint that nothing speaks against because no replica has
// reached it yet.
const Unreached = "unreached"

// Word returns the state as it is shown: its name, or Unreached instead of healthy.
func (v *View) Word() string {
	if v.State == Healthy && !v.Reached {
		return Unreached
	}
	return v.State.String()
}

// Full is the Share of an endpoint without restriction.
const Full = 1000

// Evidence says in words what the state rests on, "" while healthy.
func (v *View) Evidence() string {
	s := v.Seen
	switch {
	case v.State == Returning:
		return "was out: " + v.Cause.String()
	case v.Restarted:
		return "its engine has started again; the one before was out: " + v.Cause.String()
	}
	switch v.Cause {
	case Refused:
		return "connections are refused" + sinceLife(min(s.Answered, s.Moved))
	case Silent:
		return "the metrics page does not answer" + sinceLife(s.Answered)
	case Stalled:
		if s.Overdue == 0 {
			return "requests were past their time, and nothing moved"
		}
		if s.Starved && s.Overdue == 1 {
			return fmt.Sprintf("requests came one after the other, none was answered until its client left, nothing has moved for %s", round(s.Moved))
		}
		return fmt.Sprintf("%d of %d requests in flight are past their time, nothing has moved for %s", s.Overdue, s.InFlight, round(s.Moved))
	case Failed:
		return fmt.Sprintf("%d answers with status 500 or above, or with an error in them", s.Bad[Failed])
	case Broken:
		return fmt.Sprintf("%d connections broke before the answer", s.Bad[Broken])
	case Cut:
		return fmt.Sprintf("%d answers ended in the middle, or had not begun when their clients left", s.Bad[Cut])
	case Late:
		return fmt.Sprintf("%d answers came much later than predicted, or have not come", s.Bad[Late])
	case Declined:
		return fmt.Sprintf("%d answers with status 3xx or 4xx to requests that other endpoints answer", s.Bad[Declined])
	case Invalid:
		return fmt.Sprintf("%d answers without content, aborted or of another model", s.Bad[Invalid])
	case Halted:
		return fmt.Sprintf("%d answers stopped in the middle of their body", s.Bad[Halted])
	case Slow:
		return "tokens come at less than a quarter of the usual pace"
	case Probe:
		return fmt.Sprintf("%d probes failed", s.Missed+s.Denied)
	default:
		return ""
	}
}

// Remedy says in words what would bring the endpoint back, "" while healthy.
func (v *View) Remedy() string {
	switch v.State {
	case Suspect:
		return "answers in time, or probes that pass"
	case Out:
		probes := fmt.Sprintf("%d probes in a row that pass", v.Need)
		if v.Cause == Refused {
			probes = "accepted connections, then " + probes
		}
		return probes + v.history()
	case Probing:
		return fmt.Sprintf("%d more probes in a row that pass", max(v.Need-v.Passed, 0)) + v.history()
	case Returning:
		return fmt.Sprintf("answers in time while its share grows for %v", v.Start) + v.history()
	default:
		return ""
	}
}

// history says why a return takes longer than another's.
func (v *View) history() string {
	switch v.Flaps {
	case 0:
		return ""
	case 1:
		return "; its last return did not last"
	default:
		return fmt.Sprintf("; its last %d returns did not last", v.Flaps)
	}
}

func sinceLife(d time.Duration) string {
	if d >= Never {
		return ", and it has never been heard of"
	}
	return fmt.Sprintf(", last sign of life %s ago", round(d))
}

func round(d time.Duration) string {
	if d >= Never {
		return "ever"
	}
	return d.Round(100 * time.Millisecond).String()
}

// Change is a step of one endpoint's state.
type Change struct {
	ID   int
	From State
	To   View
}
