package problems

import (
	"fmt"
	"regexp"
	"strings"
)

// areas are the headings of the runbook by the first digit of codes.
var areas = map[byte]string{
	'1': "Replica", '2': "Group", '3': "Engines", '4': "Cache knowledge",
	'5': "Endpoints and configuration", '6': "Traffic", '7': "Prefill and decode", '8': "Host and installation",
}

// Runbook is the address of the runbook. An entry's anchor is its code in lower case.
const Runbook = "https://github.com/grapevine-epp/grapevine/blob/main/docs/runbook.md"

var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)

// plain replaces Markdown links with the page's path.
func plain(text string) string { return markdownLink.ReplaceAllString(text, "$1 (docs/$2)") }

func plainAll(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = plain(t)
	}
	return out
}

// PlainActions returns the actions without Markdown links.
func (p *Problem) PlainActions() []string { return plainAll(p.Action) }

// Help returns an entry as text for a terminal.
func (p *Problem) Help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): %s\n\n%s\n\nEffect: %s\n\nDo:\n", p.Code, p.Severity, p.Title, plain(p.Meaning), plain(p.Effect))
	for i, a := range plainAll(p.Action) {
		fmt.Fprintf(&b, "  %d. %s\n", i+1, a)
	}
	fmt.Fprintf(&b, "\nVerify: %s\n", plain(p.Verify))
	if p.Alert != nil {
		fmt.Fprintf(&b, "Alert: %s\n", p.Alert.Name)
	}
	fmt.Fprintf(&b, "Runbook: %s#%s\n", Runbook, p.anchor())
	return b.String()
}

// Overview lists all codes for a terminal.
func Overview() string {
	var b strings.Builder
	for i := range Table {
		p := &Table[i]
		if i == 0 || p.Code[2] != Table[i-1].Code[2] {
			fmt.Fprintf(&b, "\n%s\n", areas[p.Code[2]])
		}
		fmt.Fprintf(&b, "  %s  %-8s  %s\n", p.Code, p.Severity, p.Title)
	}
	return b.String()[1:]
}

func (p *Problem) anchor() string { return strings.ToLower(string(p.Code)) }

// found names the components that report an entry, for the runbook.
func (p *Problem) found() string {
	by := map[Source]string{Replica: "`status`, `grapevine_problems`", Prometheus: "Prometheus only", Doctor: "`grapevine doctor`"}[p.Source]
	if p.Alert != nil {
		by += ", alert `" + p.Alert.Name + "`"
	}
	return by
}

// Markdown returns the generated part of the runbook.
func Markdown() string {
	var b strings.Builder
	b.WriteString("\n## All problems\n\n| code | severity | problem |\n|---|---|---|\n")
	for i := range Table {
		p := &Table[i]
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", p.Code, p.anchor(), p.Severity, p.Title)
	}
	for i := range Table {
		p := &Table[i]
		if i == 0 || p.Code[2] != Table[i-1].Code[2] {
			fmt.Fprintf(&b, "\n## %s\n", areas[p.Code[2]])
		}
		fmt.Fprintf(&b, "\n### %s\n\n", p.Code)
		fmt.Fprintf(&b, "**%s** (%s; found by %s)\n\n%s\n\n", p.Title, p.Severity, p.found(), p.Meaning)
		fmt.Fprintf(&b, "Effect: %s\n\n", p.Effect)
		for i, a := range p.Action {
			fmt.Fprintf(&b, "%d. %s\n", i+1, a)
		}
		fmt.Fprintf(&b, "\nVerify: %s\n", p.Verify)
		if p.Details != "" {
			fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(p.Details))
		}
	}
	b.WriteString("\n## Alerts\n\n| alert | go to |\n|---|---|\n")
	for i := range Table {
		if p := &Table[i]; p.Alert != nil {
			fmt.Fprintf(&b, "| `%s` | [%s](#%s): %s |\n", p.Alert.Name, p.Code, p.anchor(), p.Title)
		}
	}
	return b.String()
}

// Rules returns the alerts as a file of Prometheus rules.
func Rules(o Objectives) string {
	var b strings.Builder
	b.WriteString("# Written by go test ./internal/problems -rewrite.\ngroups:\n  - name: grapevine\n    rules:\n")
	for i := range Table {
		p := &Table[i]
		if p.Alert == nil {
			continue
		}
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %s\n", p.Alert.Name, o.fill(p.expr()))
		if p.Alert.For != "" {
			fmt.Fprintf(&b, "        for: %s\n", p.Alert.For)
		}
		fmt.Fprintf(&b, "        labels: {severity: %s, code: %s}\n        annotations:\n", p.Severity, p.Code)
		texts := p.Annotations()
		fmt.Fprintf(&b, "          summary: %q\n          effect: %q\n          action: %q\n          runbook_url: %s\n", texts["summary"], texts["effect"], texts["action"], texts["runbook_url"])
	}
	return b.String()
}

// Annotations returns the annotations of the entry's alert.
func (p *Problem) Annotations() map[string]string {
	return map[string]string{
		"summary": plain(p.Meaning), "effect": plain(p.Effect), "action": strings.Join(plainAll(p.Action), " "),
		"runbook_url": Runbook + "#" + p.anchor(),
	}
}

// expr returns the expression of the entry's alert.
func (p *Problem) expr() string {
	if p.Alert.Expr != "" {
		return p.Alert.Expr
	}
	return fmt.Sprintf("max by (code) (grapevine_problems{$NS, code=%q}) > 0", string(p.Code))
}
