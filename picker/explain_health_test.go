package picker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestExplainUnhealthy: the explanations of a refused request and of a retried request name the
// unhealthy endpoints, the evidence against each, and the failure.
func TestExplainUnhealthy(t *testing.T) {
	pool := newPool(3)
	eps := pool.Snapshot().Endpoints
	set := health.NewSet(health.Options{})
	for _, ep := range eps {
		set.Join(int(ep.ID), "m", t0)
		seen := health.Evidence{Good: 200, Answered: health.Never, Moved: health.Never}
		if ep == eps[0] {
			seen.Good, seen.Bad[health.Failed] = 0, 8
		}
		set.Receive("", int(ep.ID), seen, t0)
	}
	set.Step(t0)
	pool.SetHealth(set.Snapshot())
	s := newScheduler(t, Options{Pool: pool, RefuseKillers: true})

	d, err := s.Choose(context.Background(), chatRequest("moved", 100))
	if err != nil {
		t.Fatal(err)
	}
	first, next := d.Endpoints[0], d.Endpoints[1]
	d.Observe(request.Event{Kind: request.EventHeaders, At: t0.Add(time.Second), Status: 200, Served: next, Attempts: 2})
	d.Done(request.Outcome{At: t0.Add(2 * time.Second), Status: 200, Served: next, Complete: true})
	moved, _ := s.Records().Explain("moved")
	if o := moved.Outcome; o == nil || o.Served != next || !strings.HasPrefix(o.Failed, first+": it could not be reached, refused the request, or broke off") {
		t.Errorf("the one that went on: %+v", moved.Outcome)
	}

	r := chatRequest("refused", 100)
	r.Body = []byte("poison")
	for _, ep := range eps[1:] {
		s.prompts.Died(r.PromptKey(), int(ep.ID), t0)
	}
	if _, err := s.Choose(context.Background(), r); err == nil {
		t.Fatal("it was placed")
	}
	refused, _ := s.Records().Explain("refused")
	if !strings.Contains(refused.Refused, "in flight at two engines when they died") {
		t.Errorf("the one that was refused: %q", refused.Refused)
	}
	for _, e := range []explanation.Explanation{moved, refused} {
		h := e.Health
		if len(h) != 1 || h[0].Endpoint != eps[0].Address || h[0].State != "out" || h[0].Used || !strings.Contains(h[0].Evidence, "8 answers with status 500") || h[0].BackBy == "" {
			t.Errorf("%s: %+v", e.RequestID, h)
		}
	}
}
