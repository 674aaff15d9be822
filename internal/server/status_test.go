package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/sim"
)

// TestMetricsAgreeWithStatus compares the metrics of endpoints and index, which
// are not made from Status, with it.
func TestMetricsAgreeWithStatus(t *testing.T) {
	_, o := options(t, sim.FleetOptions{Engines: 3, Engine: sim.Options{Events: &sim.EventOptions{}}})
	s := open(t, o)
	await(t, "ready", func() bool { return s.Status().State == "ready" })
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
		if !s.exact(ep.ID) {
			t.Errorf("%s is not exact for decisions", ep.Address)
		}
	}
}
