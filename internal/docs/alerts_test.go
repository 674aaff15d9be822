package docs

import (
	"regexp"
	"testing"
)

// TestAlertsHaveRunbookEntries checks that each alert of the chart links to a heading of the runbook,
// and that the runbook lists each alert.
func TestAlertsHaveRunbookEntries(t *testing.T) {
	alerts, runbook := read(t, "../../deploy/helm/grapevine/files/alerts.yaml"), read(t, "../../docs/runbook.md")
	rules := regexp.MustCompile(`(?s)- alert: (\w+).*?runbook: docs/runbook\.md#(\S+)`).FindAllStringSubmatch(alerts, -1)
	if all := regexp.MustCompile(`- alert:`).FindAllString(alerts, -1); len(rules) != len(all) || len(all) == 0 {
		t.Fatalf("%d of %d alerts have a runbook entry", len(rules), len(all))
	}
	headings := anchors(runbook)
	for _, r := range rules {
		if !headings[r[2]] {
			t.Errorf("alert %s links to docs/runbook.md#%s, which does not exist", r[1], r[2])
		}
		if !regexp.MustCompile("(?m)^\\| `" + r[1] + "` \\|").MatchString(runbook) {
			t.Errorf("docs/runbook.md does not list the alert %s", r[1])
		}
	}
}
