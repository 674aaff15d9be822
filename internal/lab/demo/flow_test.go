package demo

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// TestTenantsShare checks three tenants with demands of 1 to 3 to 9 at saturated engines over three
// replicas, one of which dies and returns. They get equal shares. Steps last for a number of
// answers. Package flow tests the exact shares in virtual time, and the demo measures them.
func TestTenantsShare(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	const answers = 120
	s, err := RunFlow(t.Context(), Options{
		Options: rig.Options{Envoy: parts.Envoy(t), Self: program(t), Engines: 3, Replicas: 3, Share: "mesh", Speed: 2}, Out: &out,
		answers: answers, tenants: []tenant{{"small", 20}, {"middle", 60}, {"large", 180}},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	s.Write(&out)
	if len(s.Steps) != 3 {
		t.Fatalf("%d steps\n%s", len(s.Steps), out.String())
	}
	for _, st := range s.Steps {
		// Its fair share is a third; without the queue it would get 69%.
		if large := st.Answered[2]; st.answered() < answers || 2*large > st.answered() {
			t.Errorf("%s: the large tenant had %d of %d answers", st.Name, large, st.answered())
		}
		// Without sharing, three replicas would use three times the limit all the time.
		if held := 1 - st.Idle; held > 1.25 {
			t.Errorf("%s: %.2f times the places were held in the mean", st.Name, held)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// TestFlowVerdict checks that exactly the exceeded limits are reported.
func TestFlowVerdict(t *testing.T) {
	good := FlowStep{Name: "all live", Answered: []uint64{50, 50, 50}, Worst: []float64{.09, -.1, .01}, Windows: 10, Most: 52, Idle: .02}
	s := &FlowSummary{Places: 48, tenants: tenants, Steps: []FlowStep{good, good}}
	if p := s.Problems(); len(p) != 1 || p[0] != "not all was measured" {
		t.Errorf("two steps of three: %q", p)
	}
	s.Steps = append(s.Steps, good)
	if p := s.Problems(); len(p) != 0 {
		t.Errorf("a good step: %q", p)
	}
	for _, c := range []struct {
		change func(*FlowStep)
		want   string
	}{
		{func(st *FlowStep) { st.Worst = []float64{0, -.11, 0} }, "the middle tenant was -11.0% off its share"},
		{func(st *FlowStep) { st.Most = 53 }, "53 requests were in the engines at once"},
		{func(st *FlowStep) { st.Failed, st.LastError = 1, errors.New("broke") }, "1 requests failed, the last with: broke"},
		{func(st *FlowStep) { st.Windows = 0 }, "too short for a window of 10s"},
		{func(st *FlowStep) { st.Answered = []uint64{9, 0, 9} }, "no request of the middle tenant was answered"},
		{func(st *FlowStep) { st.Idle = .3 }, "30.0% of the places were free"},
	} {
		bad := good
		c.change(&bad)
		s.Steps[0] = bad
		if p := s.Problems(); len(p) != 1 || !strings.Contains(p[0], c.want) {
			t.Errorf("%q, want %q", p, c.want)
		}
	}
}
