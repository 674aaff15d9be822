package problems

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the runbook and the alerts anew")

const (
	runbook  = "../../docs/runbook.md"
	alerts   = "../../deploy/helm/grapevine/files/alerts.yaml"
	markFrom = "<!-- problems: written by go test ./internal/problems -rewrite -->\n"
	markTo   = "\n<!-- end of problems -->\n"
)

// TestTable: every entry is complete, and codes, titles and alerts are unique and in order.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	form := regexp.MustCompile(`^GV[1-9][0-9]{3}$`)
	for i, p := range Table {
		if !form.MatchString(string(p.Code)) || areas[p.Code[2]] == "" {
			t.Errorf("%s: want GV and four digits of a known area", p.Code)
		}
		if i > 0 && p.Code <= Table[i-1].Code {
			t.Errorf("%s is not in order", p.Code)
		}
		if p.Severity.rank() < 0 {
			t.Errorf("%s: severity %q", p.Code, p.Severity)
		}
		for _, text := range append([]string{p.Meaning, p.Effect, p.Verify}, p.Action...) {
			if !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %q is not a sentence", p.Code, text)
			}
		}
		if len(p.Action) == 0 || p.Title == "" || seen[p.Title] {
			t.Errorf("%s lacks an action or a title of its own", p.Code)
		}
		seen[p.Title] = true
		if wants := p.Severity != Notice && p.Source != Doctor; wants != (p.Alert != nil) {
			t.Errorf("%s: alert %v, want one for all but notices and findings of doctor", p.Code, p.Alert)
		}
		if p.Alert == nil {
			continue
		}
		if seen[p.Alert.Name] || !strings.HasPrefix(p.Alert.Name, "Grapevine") {
			t.Errorf("%s: alert name %q", p.Code, p.Alert.Name)
		}
		seen[p.Alert.Name] = true
		if p.Source == Prometheus && p.Alert.Expr == "" {
			t.Errorf("%s: no replica reports it, so its alert needs an expression", p.Code)
		}
	}
}

// TestCodesAreInTheTable: the constants and the table have the same codes.
func TestCodesAreInTheTable(t *testing.T) {
	source, err := os.ReadFile("codes.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`GV\d{4}`).FindAllString(string(source), -1)
	var table []string
	for _, p := range Table {
		table = append(table, string(p.Code))
	}
	if !slices.Equal(codes, table) {
		t.Errorf("constants %v, table %v", codes, table)
	}
}

// TestGenerated: the runbook and the alerts are those of the table.
func TestGenerated(t *testing.T) {
	page, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), markFrom)
	_, after, closed := strings.Cut(rest, markTo)
	if !found || !closed {
		t.Fatalf("%s has no marks around its problems", runbook)
	}
	for path, want := range map[string]string{runbook: before + markFrom + Markdown() + markTo + after, alerts: Rules(Chart)} {
		if *rewrite {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not that of the table: go test ./internal/problems -rewrite (%v)", path, err)
		}
	}
}

// TestLoggedMessages: each message with a code is one that the code logs, and its code is in the table.
func TestLoggedMessages(t *testing.T) {
	missing := map[string]bool{}
	for message, code := range logged {
		missing[message] = true
		if _, ok := Lookup(string(code)); !ok || OfLog(message, "") != code {
			t.Errorf("%q: code %s, want %s of the table", message, OfLog(message, ""), code)
		}
	}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "problems/logs.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for message := range missing {
			if strings.Contains(string(source), `"`+message+`"`) {
				delete(missing, message)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for message := range missing {
		t.Errorf("no code logs %q", message)
	}
	if got := OfLog("endpoint health changed", "stalled"); got != Hung {
		t.Errorf("OfLog of a stalled engine = %s, want %s", got, Hung)
	}
	if got := OfLog("replica started", ""); got != "" {
		t.Errorf("OfLog of another message = %s, want none", got)
	}
}

// TestList: problems are sorted by severity and code, and subjects are counted.
func TestList(t *testing.T) {
	var l List
	for range 30 {
		l.Add(Suspect, "10.0.0.1:8000", "1 answer was late")
	}
	l.Add(Slow, "10.0.0.2:8000", "tokens are slow")
	l.Add(PoolUnhealthy, "", "2 of 3 endpoints are out")
	l.Add(Refused, "10.0.0.3:8000", "connections are refused")
	list := l.Found()
	var codes []Code
	for _, f := range list {
		codes = append(codes, f.Code)
	}
	if want := []Code{PoolUnhealthy, Refused, Slow, Suspect}; !slices.Equal(codes, want) {
		t.Errorf("codes %v, want %v", codes, want)
	}
	if n := Urgent(list); n != 3 {
		t.Errorf("Urgent() = %d, want 3", n)
	}
	last := list[3]
	if last.Count != 30 || len(last.Items) != maxItems || !strings.HasSuffix(last.Summary(), "; 27 more") {
		t.Errorf("%d subjects, %d listed, summary %q", last.Count, len(last.Items), last.Summary())
	}
	if got := list[0].Summary(); got != "2 of 3 endpoints are out" {
		t.Errorf("summary %q", got)
	}
}

// TestHelp: the help of each code has all of its texts.
func TestHelp(t *testing.T) {
	for _, p := range Table {
		found, ok := Lookup(strings.ToLower(string(p.Code)))
		if !ok {
			t.Fatalf("Lookup(%s) finds nothing", p.Code)
		}
		text := found.Help()
		for _, part := range append([]string{string(p.Code), p.Title, p.Meaning, p.Effect, p.Verify, "#" + strings.ToLower(string(p.Code))}, p.Action...) {
			if !strings.Contains(text, plain(part)) {
				t.Errorf("help of %s lacks %q", p.Code, part)
			}
		}
		if !strings.Contains(Overview(), string(p.Code)) {
			t.Errorf("the overview lacks %s", p.Code)
		}
	}
	if _, ok := Lookup("GV0000"); ok {
		t.Error("Lookup(GV0000) finds an entry")
	}
}
