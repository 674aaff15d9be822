package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestMetricsAgreeWithStatus compares Status with the metrics of endpoints and index, which are
// computed independently.
func TestMetricsAgreeWithStatus(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 3, Engine: sim.Options{Events: &sim.EventOptions{}}})
	s := open(t, o)
	testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })
	st := s.Status()
	var state, blocks strings.Builder
	state.WriteString("# HELP grapevine_knowledge_state 1 for the state of knowledge that an endpoint is in.\n# TYPE grapevine_knowledge_state gauge\n")
	blocks.WriteString("# HELP grapevine_index_endpoint_blocks Blocks that an endpoint is known to hold.\n# TYPE grapevine_index_endpoint_blocks gauge\n")
	for _, e := range st.Endpoints {
		fmt.Fprintf(&state, "grapevine_knowledge_state{endpoint=%q,state=%q} 1\n", e.Address, e.Knowledge)
		fmt.Fprintf(&blocks, "grapevine_index_endpoint_blocks{endpoint=%q} %d\n", e.Address, e.Blocks)
	}
	if err := testutil.GatherAndCompare(s.registry, strings.NewReader(state.String()+blocks.String()),
		"grapevine_knowledge_state", "grapevine_index_endpoint_blocks"); err != nil {
		t.Error(err)
	}
	for _, ep := range s.pool.Snapshot().Endpoints {
		if !s.prefixes.IndexAccepted(ep.ID) {
			t.Errorf("%s is not exact for decisions", ep.Address)
		}
	}
}

// Prompts that no model renders are counted for monitoring.
func TestPromptMetrics(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 1})
	s := open(t, o)
	testkit.Await(t, "models", s.models.Ready)
	body := []byte(`{"model":"unheard-of","prompt":"hello"}`)
	if _, _, err := s.models.Registry().Render(t.Context(), "unheard-of", nil, body, prompt.KindCompletions); err == nil {
		t.Fatal("rendered for a model that is not configured")
	}
	want := map[string]float64{"/no_model": 1}
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "grapevine_prompts_missed_total" {
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[0].GetValue()+"/"+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if !cmp.Equal(got, want) || s.Status().NoModel != 1 {
		t.Errorf("%v and %d, want %v", got, s.Status().NoModel, want)
	}
}
