package pd

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/plugins"
)

// TestTable holds that every row is whole, builds with its defaults unless it
// needs a parameter, and plays the role of its kind.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	needs := map[string]bool{
		"label-selector-filter": true, "by-label": true, "utilization-filter": true, "file-discovery": true,
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
		plays := map[plugins.Kind]bool{
			plugins.KindFilter: p.Filter != nil, plugins.KindScorer: p.Scorer != nil, plugins.KindPicker: p.Picker != nil, plugins.KindHandler: p.Handler != nil,
			plugins.KindPolicy: p.Scorer != nil && p.Picker != nil, plugins.KindDetector: p.Detector != nil, plugins.KindFairness: p.Flow != nil,
			plugins.KindOrdering: p.Flow != nil, plugins.KindDecider: p.Decider != nil, plugins.KindProducer: p.Producer != nil || row.Note != "", plugins.KindDiscovery: p.File != nil,
			plugins.KindParser: row.Note != "", plugins.KindSource: row.Note != "" || p.Metrics != nil,
		}
		if !plays[row.Kind] {
			t.Errorf("%s does not play a %s", row.Name, row.Kind)
		}
	}
}
