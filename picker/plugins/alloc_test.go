//go:build !race

package plugins

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// The race detector empties pools at random, so these run without it.

// TestAllocations checks that no filter, scorer or picker allocates.
func TestAllocations(t *testing.T) {
	fl := bigFleet(64)
	params := map[string]string{
		"label-selector-filter": `{"matchLabels":{"zone":"a"}}`, "by-label": `{"label":"zone","validValues":["a"]}`,
		"header-label-affinity-scorer": `{"headerName":"x-zone","labelKey":"zone"}`,
		"priority-holdback-policy":     `{"minCeiling":0.5}`,
		"engine-priority-producer":     `{"matchLabels":{"zone":"a"}}`,

		"endpoint-attribute-weight-scorer": `{"attributeKey":"zone","weights":{"a":1}}`, "label-producer": `{"label":"zone","attributeKey":"zone"}`,
		"endpoint-attribute-scorer":         `{"attributeKey":"g","algorithm":{"type":"linear_lower_is_better"}}`,
		"endpoint-attribute-filter":         `{"attribute":"g","algorithm":{"type":"threshold","threshold":{"operator":"LessThan","value":3}}}`,
		"disaggregatedset-rollout-screener": rolloutOf("sum"), "k8s-notification-source": `{"version":"v1","kind":"Pod"}`,
		"utilization-filter": `{"conditions":[{"metric":"waiting-queue","maxValue":3}]}`,
	}
	addresses := []string{fl.pool.Snapshot().Endpoints[0].Address}
	r := ask(5000)
	r.Session, r.Adapter = "s", "a"
	r.Headers = headerMap{request.HeaderTestSelection: "10.0.0.2:8000,10.0.0.3"}
	for _, row := range Builtin() {
		if row.Name == "file-discovery" || row.Name == "decision-tree-filter" || strings.HasPrefix(row.Name, "expression-") || strings.HasPrefix(row.Name, "wasm-") { // expressions and trees allocate, and modules have a test of their own
			continue
		}
		p := build(t, row.Name, params[row.Name])
		c := fl.cycle(r)
		keep, scores, order := make([]bool, c.Len()), make([]float64, c.Len()), make([]int32, 0, c.Len())
		if p.BindLabel != nil {
			p = p.BindLabel("zone")
		}
		if p.BindNumber != nil {
			p = p.BindNumber(plugin.GaugeNumber("g"))
		}
		run := func() {
			if p.Filter != nil {
				p.Filter.Filter(c, keep)
			}
			if p.Scorer != nil {
				p.Scorer.Score(c, scores)
			}
			if p.Picker != nil {
				p.Picker.Pick(c, scores, order)
			}
			if p.Detector != nil {
				p.Detector(c)
			}
			if p.Producer != nil && p.Producer.Urgency != nil {
				p.Producer.Urgency(c, addresses, 2)
			}
		}
		run()
		if n := testing.AllocsPerRun(20, run); n > 0 {
			t.Errorf("%s: %v allocations", row.Name, n)
		}
		c.Free()
	}
}

// TestDecisionAllocations checks that a whole decision, cycle and profile, does not allocate, also
// for engines with several ranks.
func TestDecisionAllocations(t *testing.T) {
	for _, name := range readyNames() {
		fl, h, r := bigFleet(100), Single(profile(t, name)), ask(5000)
		for i, ep := range fl.pool.Snapshot().Endpoints {
			g := ep.Gauges()
			g.Ranks = 1 + i%2*3
			ep.SetGauges(g)
		}
		plan := &cycle.Plan{}
		decide := func() {
			c := fl.cycle(r)
			plan.Order = plan.Order[:0]
			if err := h.Handle(c, plan); err != nil {
				t.Error(err)
			}
			c.Free()
		}
		decide()
		if n := testing.AllocsPerRun(50, decide); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
