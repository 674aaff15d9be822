package health

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
)

// TestViewHasEveryField: the state of an endpoint that is out is shown with all that it depends on.
func TestViewHasEveryField(t *testing.T) {
	var m machine
	fields.Fill(&m)
	m.state, m.cause, m.since = Out, Failed, time.Unix(1_700_000_000, 0)
	var o Options
	o.complete()
	v := m.view(&o)
	for _, name := range fields.Unset(v, "Share", "Overruled", "Seen") { // the set adds the first two
		t.Errorf("%s is not set", name)
	}
	if v.State != Out || v.Cause != Failed || !v.Since.Equal(m.since) || v.Score != m.score || v.Flaps != m.flaps || v.Passed != m.passed || v.Seen != m.evidence {
		t.Errorf("view() = %+v, want the state of the machine", v)
	}
	m.state = Healthy
	if v := m.view(&o); v.Cause != None {
		t.Errorf("a healthy endpoint is shown with the cause %v", v.Cause)
	}
}

// TestEvidenceCountsRequestsInFlight: requests count from their begin to their end.
func TestEvidenceCountsRequestsInFlight(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var tr Tracker
	var all [3]Watch
	for i := range all {
		all[i] = Watch{Traits: Traits{1, 2}, Question: Question(5), Read: true}
		tr.Begin(&all[i], now, now.Add(time.Minute))
		if w := &all[i]; w.Traits != (Traits{1, 2}) || w.Question != 5 || !w.Read {
			t.Errorf("Begin() leaves traits %v, question %v, read %v, want those of the request", w.Traits, w.Question, w.Read)
		}
	}
	for i := range all {
		if got, want := tr.Evidence(now).InFlight, len(all)-i; got != want {
			t.Errorf("%d requests are in flight, want %d", got, want)
		}
		all[i].End(now, None)
	}
}

// TestHealthySince: a healthy endpoint's view has the time since which it is healthy.
func TestHealthySince(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	set := NewSet(Options{})
	set.Join(1, "m", now)
	set.Receive("", 1, Evidence{Good: 9, Answered: Never, Moved: 0}, now)
	set.Step(now.Add(time.Second))
	if v := set.Snapshot().View(1); !v.Reached || v.State != Healthy || v.Since.IsZero() {
		t.Errorf("View() = %+v, want healthy since a time", v)
	}
}
