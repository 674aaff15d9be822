package picker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestOutcomeOfErrorResponses: the first byte of a refusal is no first token.
func TestOutcomeOfErrorResponses(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(2)})
	for status, want := range map[int]float64{200: 50, 400: 0, 429: 0, 503: 0} {
		id := fmt.Sprint("r", status)
		d, err := s.Choose(context.Background(), chatRequest(id, 100))
		if err != nil {
			t.Fatal(err)
		}
		d.Observe(request.Event{Kind: request.EventFirstToken, At: t0.Add(50 * time.Millisecond)})
		d.Done(request.Outcome{At: t0.Add(time.Second), Status: status})
		e, ok := s.Records().Explain(id)
		if !ok || e.Outcome == nil || e.Outcome.Status != status || e.Outcome.TTFT != want || e.Outcome.Took != 1000 {
			t.Errorf("%d: %+v, want ttft_ms %v", status, e.Outcome, want)
		}
	}
}

// TestOutcomeOfWholeAnswers: an answer that does not stream has no first token.
func TestOutcomeOfWholeAnswers(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(2)})
	r := chatRequest("whole", 100)
	r.Stream = false
	d, err := s.Choose(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	d.Observe(request.Event{Kind: request.EventFirstToken, At: t0.Add(50 * time.Millisecond)})
	d.Done(request.Outcome{At: t0.Add(time.Second), Status: 200, Complete: true})
	if e, _ := s.Records().Explain("whole"); e.Outcome == nil || e.Outcome.TTFT != 0 || e.Prompt.Space != "none" {
		t.Errorf("%+v, %+v", e.Outcome, e.Prompt)
	}
}

// TestRunnerUpOfEqualTotals: of candidates with the same total, the one that would
// be tried next is the runner-up.
func TestRunnerUpOfEqualTotals(t *testing.T) {
	for seed := range uint64(8) {
		pool := newPool(4)
		s := newScheduler(t, Options{Pool: pool, Seed: seed + 1})
		d, err := s.Choose(context.Background(), chatRequest("r", 100))
		if err != nil {
			t.Fatal(err)
		}
		d.Done(request.Outcome{At: t0, Status: 200})
		if e, _ := s.Records().Explain("r"); len(e.Fallbacks) > 0 && e.RunnerUp != e.Fallbacks[0] {
			t.Errorf("runner-up %s, next %s", e.RunnerUp, e.Fallbacks[0])
		}
	}
}

// TestRecordsCutNames: names that are kept are short, and a request is found by
// its whole identifier.
func TestRecordsCutNames(t *testing.T) {
	s := newScheduler(t, Options{Pool: newPool(2)})
	long := strings.Repeat("m", 1<<20)
	r := chatRequest(long+"1", 100)
	r.Model, r.Target, r.User, r.CacheSalt = long, long, long, long
	d, err := s.Choose(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	e, ok := s.Records().Explain(long + "1")
	if !ok || e.RequestID != budget.ShortName(long+"1") || e.Model != budget.ShortName(long) || e.Target != e.Model {
		t.Errorf("found %v with names of %d, %d and %d bytes", ok, len(e.RequestID), len(e.Model), len(e.Target))
	}
	if _, ok := s.Records().Explain(long + "2"); ok {
		t.Error("another identifier finds the same request")
	}
	r.Drop()
	if n := len(r.Model) + len(r.Target) + len(r.User) + len(r.CacheSalt); n > 4*budget.MaxName {
		t.Errorf("%d bytes of names are kept while the answer lasts", n)
	}
	d.Done(request.Outcome{At: t0, Status: 200})
}
