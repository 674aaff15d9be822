package corpus

import (
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/strict"
)

// wantCovered is the least share of recent shapes, in percent, that load or name a replacement.
const wantCovered = 95

// TestReport measures the shapes of the 90 days before the newest one, and the outcome of each.
func TestReport(t *testing.T) {
	r, err := Measure(time.Time{}, 90)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + r.Text(false))
	if got := r.Covered(); got < wantCovered {
		t.Errorf("%.1f%% of recent shapes load or name a replacement, want %d%%", got, wantCovered)
	}
	if len(r.Wrong) > 0 {
		t.Errorf("%d shapes have an unexpected outcome", len(r.Wrong))
	}
	if len(r.Results) < 30 {
		t.Errorf("%d shapes in the period, want at least 30", len(r.Results))
	}
}

// TestParse: a shape without source or date is an error, so that the age of the corpus is known.
func TestParse(t *testing.T) {
	for _, text := range []string{
		"shape a source=x expect=loads\n----\n", "shape a date=2026-09-01 expect=loads\n----\n",
		"shape a date=2026-09-01 source=x\n----\n", "shape a date=yesterday source=x expect=loads\n----\n",
	} {
		if all, err := parse(text); err == nil {
			t.Errorf("parse(%q) = %v, want an error", text, all)
		}
	}
	all, err := parse("# comment\nshape a labelled date=2026-09-01 source=x/y expect=replaced\nkind: X\n----\nerror\n\nshape b date=2026-09-02 source=x expect=loads\n----\n")
	if err != nil || len(all) != 2 || all[0].Fleet != "labelled" || all[0].Text != "kind: X\n" || all[0].Want != Replaced {
		t.Errorf("parse() = %+v, %v", all, err)
	}
}

// TestMissing: refused configurations count by all that each one lacks.
func TestMissing(t *testing.T) {
	problems := func(messages ...string) (list []strict.Problem) {
		for _, m := range messages {
			list = append(list, strict.Problem{Message: m})
		}
		return list
	}
	of := func(o Outcome, p []strict.Problem) Result { return Result{Got: o, Problems: p} }
	r := Report{Results: []Result{
		of(Replaced, problems("plugin type b of other pickers is not built in", "plugin type a of other pickers is not built in", "plugin type a of other pickers is not built in")),
		of(Replaced, problems("plugin p: parameter f is not supported")), of(Replaced, problems("plugin p: parameter f is not supported")),
		of(Faulty, problems("plugin type c of other pickers is not built in")), of(Loads, nil),
	}}
	if got := fmt.Sprint(r.missing()); got != "[{p.f 2} {a, b 1}]" {
		t.Errorf("missing: %s", got)
	}
}
