package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/problems"
)

// TestProblemsHaveARunbookEntry checks that the link of each alert leads to a heading of the runbook, and
// that the dashboard shows problems by code.
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
	dashboard := read(t, "../../deploy/helm/grapevine/files/dashboard.json")
	if !strings.Contains(dashboard, "by (code) (grapevine_problems") {
		t.Error("the dashboard does not show problems by code")
	}
	for _, p := range problems.Table {
		metrics := regexp.MustCompile(`grapevine_[a-z_]+_[a-z]+`).FindAllString(strings.ReplaceAll(p.Verify, "{use", " "), -1)
		if p.Alert != nil {
			metrics = append(metrics, regexp.MustCompile(`grapevine_[a-z_]+`).FindAllString(p.Alert.Expr, -1)...)
		}
		for _, m := range metrics {
			if !strings.Contains(dashboard, m) {
				t.Errorf("%s refers to %s, and no panel of the dashboard has it", p.Code, m)
			}
		}
	}
}
