package config

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
)

// TestParametersReachConfiguration: a file with all kinds of plugins, whose parameters must all be in the
// result.
func TestParametersReachConfiguration(t *testing.T) {
	c := parse(t, `
plugins:
- {type: metrics-data-source, parameters: {scheme: https, path: /gauges, insecureSkipVerify: true, port: 9100}}
- type: core-metrics-extractor
  parameters:
    engineConfigs:
    - {name: mine, queuedRequestsSpec: "my:waiting", runningRequestsSpec: "my:running", kvUsageSpec: "my:use"}
- {type: session-id-producer, parameters: {headerName: x-session}}
- {type: engine-priority-producer, parameters: {everyEndpoint: true}}
- {type: precise-prefix-cache-producer, parameters: {tierWeights: {cpu: 0.6}}}
- {type: endpoint-pin-screener}
- {type: decode-filter, name: decode}
- {type: queue-scorer, name: queue}
- {type: max-score-picker, name: best}
schedulingProfiles:
- name: main
  plugins: [{pluginRef: decode}, {pluginRef: queue, weight: 3}, {pluginRef: best}]
`)
	m := c.Metrics
	if m.Scheme != "https" || m.Path != "/gauges" || !m.TLS.SkipVerify || m.Port != 9100 || m.Dialects == nil {
		t.Errorf("Metrics = %+v, want those of the file", m)
	}
	for _, name := range fields.Unset(*c.Rules, "Names", "Admit", "Answer", "Handler", "Tiers", "Urgency") { // the first three are of other plugins
		t.Errorf("Rules.%s is not set", name)
	}
	if c.Rules.Tiers == nil || c.Rules.Urgency == nil {
		t.Errorf("Rules = %+v, want tier weights and engine priorities", c.Rules)
	}
	p := c.Profiles[0]
	if len(p.Filters) != 2 || len(p.Scorers) != 1 || p.Picker == nil {
		t.Fatalf("profile %+v, want two filters, a scorer and a picker", p)
	}
	for _, f := range p.Filters {
		if f.Name == "" || f.Filter == nil {
			t.Errorf("filter %+v, want a name and a filter", f)
		}
	}
	if p.Filters[1].Name != "decode" {
		t.Errorf("the second filter is %q, want decode behind the one of all profiles", p.Filters[1].Name)
	}
	if s := p.Scorers[0]; s.Name != "queue" || s.Weight != 3 || s.Scorer == nil {
		t.Errorf("scorer %+v, want queue with weight 3", s)
	}
}

// TestGateHasEverySetting: every setting of the queue reaches the gate, and its usage limit is made anew
// for each pool.
func TestGateHasEverySetting(t *testing.T) {
	f := parse(t, `
featureGates: [flowControl]
plugins:
- {type: queue-scorer}
schedulingProfiles:
- {name: main, plugins: [{pluginRef: queue-scorer}]}
`).Flow
	fields.Fill(&f.Sizing)
	fields.Fill(&f.Identity)
	g := f.Gate()
	for _, name := range fields.Unset(*g) {
		t.Errorf("Config.%s is not set", name)
	}
	if g.Sizing != f.Sizing || g.Identity[0] != f.Identity[0] || g.Queue().Limit == nil {
		t.Errorf("Gate() = %+v, want the sizing and identities of %+v, and a limit", g, f)
	}
}
