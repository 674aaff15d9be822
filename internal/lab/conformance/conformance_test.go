package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// play runs the suite against the reference picker with a fault.
func play(t *testing.T, fault string, timeout time.Duration, ids ...string) *Report {
	t.Helper()
	pool := []string{"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"}
	report, err := Run(t.Context(), Options{
		Target: startReference(t, &reference{fault: fault, pool: pool}), Empty: startReference(t, &reference{fault: fault}),
		Plaintext: true, Endpoints: pool, Model: "m", Timeout: timeout,
	}, ids...)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestReference checks that a picker that keeps every rule passes every case that applies.
func TestReference(t *testing.T) {
	for _, r := range play(t, "", time.Minute).Results {
		want := Pass
		if r.ID == "destination-list" {
			want = NotApplicable // it names one endpoint
		}
		if r.Outcome != want {
			t.Errorf("%s: %s (%s), want %s", r.ID, r.Outcome, r.Seen, want)
		}
	}
}

// TestFaults plants one fault for each MUST and SHOULD case in the reference picker. The case must
// fail.
func TestFaults(t *testing.T) {
	for _, c := range Cases() {
		if c.Level == May {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			timeout := time.Second
			switch c.ID {
			case "decision-time", "close-early", "out-of-order":
				timeout = time.Minute // the fault is not a missing answer
			}
			if r := play(t, c.ID, timeout, c.ID).Results[0]; r.Outcome != Fail {
				t.Errorf("%s: %s with its fault planted (%s), want %s", c.ID, r.Outcome, r.Seen, Fail)
			} else {
				t.Log(r.Seen)
			}
		})
	}
}

// TestUnreachable checks that a picker without a listener gets no verdict.
func TestUnreachable(t *testing.T) {
	report, err := Run(t.Context(), Options{Target: "127.0.0.1:1", Plaintext: true, Endpoints: []string{"10.0.0.1:1", "10.0.0.2:1"}}, "destination-header", "body-huge", "subset-empty")
	if err != nil {
		t.Fatal(err)
	}
	if report.Failed() != 0 || report.Unclear() != 3 {
		t.Errorf("%d failed and %d inconclusive, want 0 and 3: %v", report.Failed(), report.Unclear(), report.Results)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Target: "x"}, {Target: "x", Endpoints: []string{"10.0.0.1:1"}}} {
		if _, err := Run(t.Context(), o); !errors.Is(err, ErrOptions) {
			t.Errorf("Run(%+v) = %v, want %v", o, err, ErrOptions)
		}
	}
	if _, err := Run(t.Context(), Options{Target: "x", Endpoints: []string{"10.0.0.1:1", "10.0.0.2:1"}}, "no-such-case"); err == nil {
		t.Error("an unknown case is accepted")
	}
}

// TestCases checks that every case has what a report shows.
func TestCases(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases() {
		if seen[c.ID] || c.ID == "" || c.Source == "" || c.Requirement == "" || c.Test == "" || c.run == nil {
			t.Errorf("case %q is incomplete or not unique", c.ID)
		}
		seen[c.ID] = true
	}
}

// TestFormats checks that the forms of a report agree and that the table of several reports marks
// differences.
func TestFormats(t *testing.T) {
	good := play(t, "", time.Minute, "destination-header", "subset-empty")
	good.Picker = Picker{Name: "good", Version: "v1", Command: "picker --run"}
	bad := play(t, "subset-empty", time.Minute, "destination-header", "subset-empty")
	bad.Picker = Picker{Name: "bad"}
	var table, page bytes.Buffer
	if err := errors.Join(good.WriteTable(&table), good.WriteMarkdown(&page)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pass  MUST  destination-header", "MUST: 2 passed, 0 failed, 0 not applicable, 0 inconclusive"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
	for _, want := range []string{"# Conformance report: good v1", "picker --run", "| `subset-empty` | MUST | pass |"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, &page)
		}
	}
	matrix := Matrix([]*Report{good, bad})
	for _, want := range []string{"| `destination-header` | MUST | pass | pass |", "| **`subset-empty`** | MUST | pass | fail |", "| passed | MUST | 2 of 2 | 1 of 2 |"} {
		if !strings.Contains(matrix, want) {
			t.Errorf("the matrix lacks %q:\n%s", want, matrix)
		}
	}
	var back Report
	raw, err := json.Marshal(good)
	if err == nil {
		err = json.Unmarshal(raw, &back)
	}
	if err != nil || back.Summary[Must][Pass] != 2 || back.APIVersion != ReportVersion {
		t.Errorf("after JSON: %+v, %v", back, err)
	}
}
