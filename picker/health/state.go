package health

import (
	"fmt"
	"time"
)

// State is the health state of an endpoint.
type State uint8

// States.
const (
	Healthy   State = iota
	Suspect         // gets a trickle of requests
	Out             // gets probes only
	Probing         // out, but probes have begun to pass
	Returning       // its share of requests grows back
	NumStates
)

var stateNames = [NumStates]string{"healthy", "suspect", "out", "probing", "returning"}

// String returns the state's name as used in metrics.
func (s State) String() string {
	if s >= NumStates {
		return "unknown"
	}
	return stateNames[s]
}

// View is the health of one endpoint. It is a plain value.
type View struct {
	State State
	Cause Cause     // of the state; None while healthy
	Since time.Time // when the state began
	// Share is in how many of 1,000 decisions the endpoint may be a candidate.
	Share     uint32
	Reached   bool // some replica has had a sign of life
	Restarted bool // its engine restarted while it was out
	// Overruled means that soft evidence is ignored because it applies to most of the group. The
	// endpoint is used despite its state.
	Overruled bool

	Score  float64       // log-likelihood ratio that it is unhealthy, from answers
	Need   int           // consecutive probes that must pass before it returns
	Passed int           // consecutive probes passed so far
	Flaps  int           // failed returns; each makes the next one slower
	Start  time.Duration // time in which its share grows back
	Seen   Evidence
}

// Unreached is shown for an endpoint without negative evidence that no replica has reached yet.
const Unreached = "unreached"

// Word returns the displayed state: its name, or Unreached instead of healthy.
func (v *View) Word() string {
	if v.State == Healthy && !v.Reached {
		return Unreached
	}
	return v.State.String()
}

// Full is the Share of an endpoint without restriction.
const Full = 1000

// Evidence describes the evidence for the state. It returns "" while healthy.
func (v *View) Evidence() string {
	s := v.Seen
	switch {
	case v.State == Returning:
		return "was out: " + v.Cause.String()
	case v.Restarted:
		return "its engine restarted; the previous instance was out: " + v.Cause.String()
	}
	switch v.Cause {
	case Refused:
		return "connections are refused" + sinceLife(min(s.Answered, s.Moved))
	case Silent:
		return "the metrics page does not answer" + sinceLife(s.Answered)
	case Stalled:
		if s.Overdue == 0 {
			return "requests were overdue, and none made progress"
		}
		if s.Starved && s.Overdue == 1 {
			return fmt.Sprintf("no request was answered before its client left, and none has made progress for %s", round(s.Moved))
		}
		return fmt.Sprintf("%d of %d requests in flight are overdue, and none has made progress for %s", s.Overdue, s.InFlight, round(s.Moved))
	case Failed:
		return fmt.Sprintf("%d answers with status 500 or above, or with an error in them", s.Bad[Failed])
	case Broken:
		return fmt.Sprintf("%d connections closed before the answer", s.Bad[Broken])
	case Cut:
		return fmt.Sprintf("%d answers were cut off, or had not begun when their clients left", s.Bad[Cut])
	case Late:
		return fmt.Sprintf("%d answers were much later than predicted, or are still missing", s.Bad[Late])
	case Declined:
		return fmt.Sprintf("%d answers with status 3xx or 4xx to requests that other endpoints answer", s.Bad[Declined])
	case Invalid:
		return fmt.Sprintf("%d answers without content, aborted, incomplete, of repeated text or of another model", s.Bad[Invalid])
	case Short:
		return fmt.Sprintf("%d answers much shorter than those of other endpoints to similar requests", s.Bad[Short])
	case Halted:
		return fmt.Sprintf("%d answers stopped in the middle of their body", s.Bad[Halted])
	case Slow:
		return "tokens arrive at less than a quarter of the usual rate"
	case Probe:
		return fmt.Sprintf("%d probes failed", s.Missed+s.Denied)
	default:
		return ""
	}
}

// Remedy describes the condition for the endpoint's return. It returns "" while healthy.
func (v *View) Remedy() string {
	switch v.State {
	case Suspect:
		return "timely answers, or passed probes"
	case Out:
		probes := fmt.Sprintf("%d passed probes in a row", v.Need)
		if v.Cause == Refused {
			probes = "accepted connections, then " + probes
		}
		return probes + v.history()
	case Probing:
		return fmt.Sprintf("%d more passed probes in a row", max(v.Need-v.Passed, 0)) + v.history()
	case Returning:
		return fmt.Sprintf("timely answers while its share grows for %v", v.Start) + v.history()
	default:
		return ""
	}
}

// history explains why the return takes longer than usual.
func (v *View) history() string {
	switch v.Flaps {
	case 0:
		return ""
	case 1:
		return "; it failed again after its last return"
	default:
		return fmt.Sprintf("; it failed again after each of its last %d returns", v.Flaps)
	}
}

func sinceLife(d time.Duration) string {
	if d >= Never {
		return ", and it has never been reached"
	}
	return fmt.Sprintf(", last sign of life %s ago", round(d))
}

func round(d time.Duration) string {
	if d >= Never {
		return "ever"
	}
	return d.Round(100 * time.Millisecond).String()
}

// Change is a state transition of one endpoint.
type Change struct {
	ID   int
	From State
	To   View
}
