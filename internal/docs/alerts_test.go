package docs

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/problems"
)

// TestProblemsHaveARunbookEntry checks that the link of each alert leads to a heading of the runbook.
func TestProblemsHaveARunbookEntry(t *testing.T) {
	alerts, runbook := read(t, "../../deploy/helm/grapevine/files/alerts.yaml"), read(t, "../../docs/runbook.md")
	headings := anchors(runbook)
	for _, p := range problems.Table {
		anchor := strings.ToLower(string(p.Code))
		if !headings[anchor] {
			t.Errorf("docs/runbook.md has no heading %s", p.Code)
		}
		if p.Alert != nil && !strings.Contains(alerts, "runbook_url: "+problems.Runbook+"#"+anchor+"\n") {
			t.Errorf("alert %s does not link to docs/runbook.md#%s", p.Alert.Name, anchor)
		}
	}
}
