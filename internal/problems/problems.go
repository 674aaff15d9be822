package problems

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Code is the stable code of a problem: GV and four digits.
type Code string

// Severity says how soon somebody has to act.
type Severity string

// Severities, the most urgent one first.
const (
	Critical Severity = "critical" // users are affected: act now
	Warning  Severity = "warning"  // degraded: act today
	Notice   Severity = "notice"   // passing or chosen: no action is required
)

func (s Severity) rank() int { return slices.Index([]Severity{Critical, Warning, Notice}, s) }

// Source is the component that finds a problem.
type Source uint8

// Sources.
const (
	Replica    Source = iota // a replica reports it in status, metric and log
	Prometheus               // only an alert can find it
	Doctor                   // grapevine doctor finds it
)

// Problem is one entry of the table. All texts are plain sentences.
type Problem struct {
	Code     Code
	Title    string // a few words, in lower case
	Severity Severity
	Source   Source
	Meaning  string
	Effect   string // on users
	Action   []string
	Verify   string
	Details  string // Markdown for the runbook, such as a table of causes
	Alert    *Alert // nil for notices and for findings of doctor
}

// Alert is the Prometheus rule for a problem.
type Alert struct {
	Name string
	For  string // how long the expression has to hold; "" for not at all
	// Expr is the expression, with $NS for the label matcher of the namespace and $ERRORS, $FIRST
	// and $LATE for Objectives. "" means that grapevine_problems counts the problem.
	Expr string
}

// Lookup returns the entry of a code. Case does not matter.
func Lookup(code string) (Problem, bool) {
	for _, p := range Table {
		if strings.EqualFold(string(p.Code), code) {
			return p, true
		}
	}
	return Problem{}, false
}

// OfAlert returns the entry of an alert. Case does not matter.
func OfAlert(name string) (Problem, bool) {
	for _, p := range Table {
		if p.Alert != nil && strings.EqualFold(p.Alert.Name, name) {
			return p, true
		}
	}
	return Problem{}, false
}

// Item is one subject that has a problem: an endpoint, a member, a model or a file.
type Item struct {
	Subject string `json:"subject,omitempty"` // "": the replica itself
	Detail  string `json:"detail,omitempty"`
}

// String returns the item as text.
func (i Item) String() string {
	if i.Subject == "" || i.Detail == "" {
		return i.Subject + i.Detail
	}
	return i.Subject + ": " + i.Detail
}

// Found is a problem that exists now, with the texts of its entry.
type Found struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Title    string   `json:"title"`
	Count    int      `json:"count"`           // number of subjects
	Items    []Item   `json:"items,omitempty"` // the first ones
	Effect   string   `json:"effect"`
	Action   []string `json:"action"`
}

// maxItems is how many subjects of one problem are listed.
const maxItems = 20

// List collects the problems that exist at one moment. The zero value is empty.
type List struct{ found []Found }

// Add adds a subject to a problem. It panics if the code is not in the table.
func (l *List) Add(code Code, subject, detail string) {
	at := slices.IndexFunc(l.found, func(f Found) bool { return f.Code == code })
	if at < 0 {
		p, ok := Lookup(string(code))
		if !ok {
			panic("problems: no entry for " + string(code))
		}
		at = len(l.found)
		l.found = append(l.found, Found{Code: p.Code, Severity: p.Severity, Title: p.Title, Effect: plain(p.Effect), Action: plainAll(p.Action)})
	}
	f := &l.found[at]
	if f.Count++; len(f.Items) < maxItems {
		f.Items = append(f.Items, Item{subject, detail})
	}
}

// Found returns the problems, the most urgent first.
func (l *List) Found() []Found {
	slices.SortFunc(l.found, func(a, b Found) int { return Compare(a.Code, b.Code) })
	return l.found
}

// Compare orders codes by urgency, the most urgent first. Unknown codes come last.
func Compare(a, b Code) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

func rank(c Code) int {
	if p, ok := Lookup(string(c)); ok {
		return p.Severity.rank()
	}
	return len(Table)
}

// Urgent counts the problems that somebody has to act on.
func Urgent(list []Found) (n int) {
	for _, f := range list {
		if f.Severity != Notice {
			n++
		}
	}
	return n
}

// Summary describes the first subjects of a problem in one line.
func (f *Found) Summary() string {
	const shown = 3
	var parts []string
	for _, i := range f.Items[:min(len(f.Items), shown)] {
		parts = append(parts, i.String())
	}
	if more := f.Count - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, "; ")
}
