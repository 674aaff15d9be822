package picker

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// tierMatcher reports its tokens as cached for every prompt at every endpoint.
type tierMatcher struct {
	fakeMatcher
	held [][block.NumTiers]int32
}

func (m *tierMatcher) Match(_ context.Context, _ *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
	for k, ep := range eps {
		held[k].Run.Tokens = m.held[ep.ID]
	}
}

// Tier weights determine the choice and are shown. They do not change the value that is compared
// with the engine's own count.
func TestTierWeightsDecide(t *testing.T) {
	for _, c := range []struct {
		tiers   *cycle.TierWeights
		learned bool     // loading from host memory saves half
		want    []string // choice, then the weighted tokens of each candidate
	}{
		{nil, false, []string{"10.0.0.1:8000", "700", "800", "500", "500"}},
		{nil, true, []string{"10.0.0.0:8000", "700", "500", "500", "500"}},
		{&cycle.TierWeights{1, .6, .5, .75}, true, []string{"10.0.0.3:8000", "700", "600", "500", "750"}},
		{&cycle.TierWeights{1, 0, 0, 0}, false, []string{"10.0.0.0:8000", "700", "0", "0", "0"}},
	} {
		m := &tierMatcher{held: [][block.NumTiers]int32{{700, 0, 0, 0}, {0, 1000, 0, 0}, {0, 0, 1000, 0}, {0, 0, 0, 1000}}}
		pool := newPool(4)
		for range 100 {
			if c.learned {
				pool.Loads().Observe(.5, .8)
			}
		}
		s := newScheduler(t, Options{Pool: pool, Matcher: m, Rules: &Rules{Handler: single{testProfile()}, Tiers: c.tiers}})
		d, err := s.Choose(t.Context(), chatRequest("r", 1000))
		if err != nil {
			t.Fatal(err)
		}
		e, _ := s.Records().Explain("r")
		got := []string{e.Choice}
		for _, candidate := range e.Candidates {
			got = append(got, fmt.Sprint(candidate.Held))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v: -want +got:\n%s", c.tiers, diff)
		}
		d.Done(request.Outcome{At: t0, Status: 200, Complete: true})
		raw := 1000
		if c.want[0] == "10.0.0.0:8000" {
			raw = 700
		}
		if want := fmt.Sprintf("%s %d 200", c.want[0], raw); len(m.finished) != 1 || m.finished[0] != want {
			t.Errorf("%v: finished %v, want %s", c.tiers, m.finished, want)
		}
	}
}
