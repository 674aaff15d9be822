package picker

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// warms asks for a warm-up of the last candidate.
type warms struct{}

func (warms) Score(c *cycle.Cycle, scores []float64) {
	if last := len(scores) - 1; c.MayWarmUp(last) {
		c.WarmUp(last)
	}
}

// TestWarmUps checks that a warm-up is in the load tracker from the decision to its end, and is
// shown with the request. It counts as cached while it runs; after a failure it does not.
func TestWarmUps(t *testing.T) {
	pool, match := newPool(2), &fakeMatcher{tokens: []int32{900, 100}}
	profile := testProfile()
	profile.Scorers = append(profile.Scorers, cycle.ProfileScorer{Name: "warms", Scorer: warms{}})
	var sent []string
	var end func(time.Time, int)
	takes, sends := true, true
	s := newScheduler(t, Options{
		Pool: pool, Matcher: match, Rules: &Rules{Handler: single{profile}},
		WarmUps: WarmUps{
			Takes: func(*request.Request) bool { return takes },
			Send: func(w *WarmUp, ended func(time.Time, int)) bool {
				sent, end = append(sent, w.Endpoint.Address), ended
				if w.Request.InputTokens != 1000 || w.Work != (endpoint.Work{Input: 1000, New: 900}) || w.Decision.Endpoints[0] != "10.0.0.0:8000" {
					t.Errorf("%+v, %v", w.Work, w.Decision.Endpoints)
				}
				return sends
			},
		},
	})
	ep := pool.Snapshot().Endpoints[1]
	place := func(id string) *request.Decision {
		t.Helper()
		d, err := s.Choose(context.Background(), chatRequest(id, 1000))
		if err != nil || d.Endpoints[0] != "10.0.0.0:8000" {
			t.Fatal(d, err)
		}
		return d
	}
	look := func(what string, load endpoint.Load, chosen, finished []string) {
		t.Helper()
		got := pool.LoadTracker().Load(ep, t0)
		got = endpoint.Load{Requests: got.Requests, Waiting: got.Waiting, Prefill: got.Prefill, Tokens: got.Tokens}
		if got != load || !cmp.Equal(match.chosen, chosen) || !cmp.Equal(match.finished, finished) {
			t.Errorf("%s: book %+v, chosen %v, finished %v", what, got, match.chosen, match.finished)
		}
		match.chosen, match.finished = nil, nil
	}
	const first, second = "10.0.0.0:8000", "10.0.0.1:8000"
	d := place("a")
	look("under way", endpoint.Load{Requests: 1, Waiting: 1, Prefill: 900, Tokens: 1000}, []string{first, second}, nil)
	if e, _ := s.Records().Explain("a"); !cmp.Equal(e.WarmUp, &explanation.WarmUp{Endpoint: second, Missing: 900}) {
		t.Errorf("explained as %+v", e.WarmUp)
	}
	d.Done(request.Outcome{At: t0, Status: 200, Complete: true})
	look("the request has ended, not the warm-up", endpoint.Load{Requests: 1, Waiting: 1, Prefill: 900, Tokens: 1000}, nil, []string{first + " 900 200"})
	end(t0, 200)
	look("answered", endpoint.Load{}, nil, nil)
	place("b").Done(request.Outcome{At: t0, Status: 200, Complete: true})
	end(t0, 503)
	look("failed", endpoint.Load{}, []string{first, second}, []string{first + " 900 200", second + " 100 503"})
	sends = false
	place("c").Done(request.Outcome{At: t0, Status: 200, Complete: true})
	look("not sent", endpoint.Load{}, []string{first}, []string{first + " 900 200"})
	if e, _ := s.Records().Explain("c"); e.WarmUp != nil {
		t.Errorf("one that was not sent is explained as %+v", e.WarmUp)
	}
	takes = false
	place("d").Done(request.Outcome{At: t0, Status: 200, Complete: true})
	if !cmp.Equal(sent, []string{second, second, second}) {
		t.Errorf("sent to %v", sent)
	}
}
