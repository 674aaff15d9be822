package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestMetricsAgreeWithStatus compares Status with the metrics of endpoints and index, which are
// computed independently.
func TestMetricsAgreeWithStatus(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 3, Engine: sim.Options{Events: &sim.EventOptions{}}})
	s := open(t, o)
	testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })
	st := s.Status()
	var state, blocks strings.Builder
	state.WriteString("# HELP grapevine_knowledge_state 1 for the current knowledge state of an endpoint.\n# TYPE grapevine_knowledge_state gauge\n")
	blocks.WriteString("# HELP grapevine_index_endpoint_blocks Blocks in the index for an endpoint.\n# TYPE grapevine_index_endpoint_blocks gauge\n")
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

// TestModellessStatus checks that requests without a model in a pool of several are a problem with
// their paths, such as WebSockets whose first message names it.
func TestModellessStatus(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 2})
	s := open(t, o)
	testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })
	problem := func() (detail string) {
		for _, f := range s.Status().Problems {
			if f.Code == problems.Modelless {
				detail = f.Items[0].Detail
			}
		}
		return detail
	}
	if got := problem(); got != "" {
		t.Errorf("problem before any request: %q", got)
	}
	ep := s.pool.Snapshot().Endpoints[1]
	testkit.Await(t, "a request without a model", func() bool {
		s.pool.SetModels(ep.ID, endpoint.ModelList{Models: []endpoint.Model{{Name: "another"}}}, monotime.Now())
		d, err := s.scheduler.Choose(t.Context(), &request.Request{Kind: request.KindOther, Path: "/v1/realtime"})
		if err != nil {
			t.Fatal(err)
		}
		d.Done(request.Outcome{Status: 101, Complete: true})
		return s.Status().Modelless.Requests > 0
	})
	if got, want := problem(), "1 requests since the start, of /v1/realtime"; got != want {
		t.Errorf("problem = %q, want %q", got, want)
	}
}
