package pd

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// TestTable checks that every row is complete, builds with its defaults unless it needs a
// parameter, and has the role of its kind.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	needs := map[string]bool{
		"label-selector-filter": true, "by-label": true, "utilization-filter": true, "file-discovery": true, "header-label-affinity-scorer": true,
		"priority-holdback-policy": true, "engine-priority-producer": true, "decision-tree-filter": true, "disaggregatedset-rollout-screener": true, "k8s-notification-source": true,
		"endpoint-attribute-weight-scorer": true, "endpoint-attribute-scorer": true, "endpoint-attribute-filter": true, "label-producer": true, "expression-filter": true, "expression-scorer": true, "wasm-filter": true, "wasm-scorer": true,
	}
	for _, row := range Table() {
		for _, name := range append([]string{row.Name}, row.Aliases...) {
			if seen[name] {
				t.Errorf("%s is named twice", name)
			}
			seen[name] = true
		}
		if row.Kind == "" || !strings.HasSuffix(row.Summary, ".") {
			t.Errorf("%s: kind %q, summary %q", row.Name, row.Kind, row.Summary)
		}
		p, err := row.New(nil)
		if (err != nil) != needs[row.Name] {
			t.Errorf("%s: %v", row.Name, err)
		}
		if err != nil {
			continue
		}
		plays := map[plugin.Kind]bool{
			plugin.KindFilter: p.Filter != nil, plugin.KindScorer: p.Scorer != nil, plugin.KindPicker: p.Picker != nil, plugin.KindHandler: p.Handler != nil,
			plugin.KindPolicy: p.Scorer != nil && p.Picker != nil, plugin.KindDetector: p.Detector != nil, plugin.KindFairness: p.Flow != nil, plugin.KindUsage: p.Flow != nil && p.Flow.Limit != nil,
			plugin.KindOrdering: p.Flow != nil, plugin.KindDecider: p.Decider.Split != nil, plugin.KindProducer: p.Producer != nil || p.Labels != nil || p.Admit != nil || p.Pull != nil || row.Note != "", plugin.KindDiscovery: p.File != nil,
			plugin.KindParser: row.Note != "", plugin.KindSource: row.Note != "" || p.Metrics != nil || p.Topology != nil,
		}
		if !plays[row.Kind] {
			t.Errorf("%s does not play a %s", row.Name, row.Kind)
		}
	}
}
