package config

import (
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
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
- {type: p2p-source-producer}
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
	if list := m.Dialects.List; len(list) != 1 || list[0].Name != "mine" || list[0].Waiting.Name != "my:waiting" || list[0].Running.Name != "my:running" || list[0].Use.Name != "my:use" {
		t.Errorf("Dialects = %+v, want the names of the file", list)
	}
	for _, name := range fields.Unset(*c.Rules, "Names", "Admit", "Answer", "Handler", "Tiers", "Urgency", "Propagates", "Pull") { // the first three and Propagates are of other files
		t.Errorf("Rules.%s is not set", name)
	}
	if c.Rules.Tiers == nil || c.Rules.Urgency == nil || c.Rules.Pull == nil {
		t.Errorf("Rules = %+v, want tier weights, engine priorities and sources of blocks", c.Rules)
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

// TestAttributesReachPlugins: plugins that read attributes get the labels that producers publish under their
// keys, as text and as numbers.
func TestAttributesReachPlugins(t *testing.T) {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	var specs []endpoint.Spec
	for i, labels := range []map[string]string{{"gpu": "slow", "watts": "100"}, {"gpu": "fast", "watts": "200"}} {
		specs = append(specs, endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 8000), Labels: labels})
	}
	pool.Set(specs)
	for name, c := range map[string]struct {
		plugin string
		live   int
		best   int32
	}{
		"text":   {"{type: endpoint-attribute-weight-scorer, name: x, parameters: {attributeKey: kind, weights: {fast: 4, slow: 1}}}", 2, 1},
		"number": {"{type: endpoint-attribute-scorer, name: x, parameters: {attributeKey: power, algorithm: {type: linear_lower_is_better}}}", 2, 0},
		"filter": {"{type: endpoint-attribute-filter, name: x, parameters: {attribute: power, algorithm: {type: threshold, threshold: {operator: GreaterThan, value: 150}}}}", 1, 1},
	} {
		p := parse(t, `
plugins:
- {type: label-producer, name: kinds, parameters: {label: gpu, attributeKey: kind}}
- {type: label-producer, name: powers, parameters: {label: watts, attributeKey: power, valueType: number}}
- {type: max-score-picker}
- `+c.plugin+`
schedulingProfiles:
- {name: main, plugins: [{pluginRef: x}, {pluginRef: max-score-picker}]}
`).Profiles[0]
		cy := cycle.New(cycle.Options{Pool: pool, Now: time.Unix(1, 0), Seed: 1}, &request.Request{Model: "m", Target: "m"})
		r := p.Run(cy)
		if len(r.Live) != c.live || r.Best() != c.best {
			t.Errorf("%s: %d endpoints, the best is %d, want %d and %d", name, len(r.Live), r.Best(), c.live, c.best)
		}
		cy.Free()
	}
}
