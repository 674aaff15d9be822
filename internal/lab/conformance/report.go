package conformance

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// ReportVersion is the API version of [Report]. Fields are only added within a version.
const ReportVersion = "conformance.grapevine-epp.github.io/v1"

// Picker identifies the tested picker, as named by the caller of the suite.
type Picker struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Source  string `json:"source,omitempty"`  // where its program comes from, such as a Go package
	Command string `json:"command,omitempty"` // how it was started
}

// Report is the result of a run.
type Report struct {
	APIVersion   string                    `json:"apiVersion"`
	Kind         string                    `json:"kind"`
	SuiteVersion string                    `json:"suiteVersion"`
	Picker       Picker                    `json:"picker"`
	Date         string                    `json:"date"` // UTC, RFC 3339
	Endpoints    int                       `json:"endpoints"`
	Timeout      string                    `json:"timeout"` // of each case; body-huge has three times as long
	Summary      map[Level]map[Outcome]int `json:"summary"`
	Results      []Result                  `json:"results"`
}

// Result is the outcome of one case.
type Result struct {
	ID          string  `json:"id"`
	Level       Level   `json:"level"`
	Outcome     Outcome `json:"outcome"`
	Seen        string  `json:"seen"` // observed behavior, or the reason why the case was not run
	Requirement string  `json:"requirement"`
	Source      string  `json:"source"`
	Test        string  `json:"test"`
}

func newReport(o Options, start time.Time) *Report {
	r := &Report{
		APIVersion: ReportVersion, Kind: "ConformanceReport", SuiteVersion: SuiteVersion, Picker: o.Picker,
		Date: start.UTC().Format(time.RFC3339), Endpoints: len(o.Endpoints), Timeout: o.Timeout.String(), Summary: map[Level]map[Outcome]int{},
	}
	for _, l := range Levels {
		r.Summary[l] = map[Outcome]int{}
		for _, outcome := range Outcomes {
			r.Summary[l][outcome] = 0
		}
	}
	return r
}

func (r *Report) add(result Result) {
	r.Results = append(r.Results, result)
	r.Summary[result.Level][result.Outcome]++
}

// Failed returns the number of MUST cases that failed.
func (r *Report) Failed() int { return r.Summary[Must][Fail] }

// Unclear returns the number of MUST cases without a verdict.
func (r *Report) Unclear() int { return r.Summary[Must][Inconclusive] }

// WriteTable writes the report for people at a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, x := range r.Results {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", x.Outcome, x.Level, x.ID, x.Seen)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, r.counts())
	return err
}

// counts is one line for each level.
func (r *Report) counts() string {
	var b strings.Builder
	for _, l := range Levels {
		n := r.Summary[l]
		fmt.Fprintf(&b, "%s: %d passed, %d failed, %d not applicable, %d inconclusive\n", l, n[Pass], n[Fail], n[NotApplicable], n[Inconclusive])
	}
	return b.String()
}

// cell makes a text safe for a cell of a Markdown table.
var cell = strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace

// WriteMarkdown writes the report as a page.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Conformance report: %s %s\n\n", r.Picker.Name, r.Picker.Version)
	fmt.Fprintf(&b, "Suite %s, %s, %d endpoints, %s for each case.\n", r.SuiteVersion, r.Date, r.Endpoints, r.Timeout)
	if r.Picker.Command != "" {
		fmt.Fprintf(&b, "\n```sh\n%s\n```\n", r.Picker.Command)
	}
	fmt.Fprintf(&b, "\n%s\n| case | level | outcome | seen | requirement | source |\n|---|---|---|---|---|---|\n", strings.ReplaceAll(r.counts(), "\n", "  \n"))
	for _, x := range r.Results {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", x.ID, x.Level, x.Outcome, cell(x.Seen), cell(x.Requirement), cell(x.Source))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Matrix returns a Markdown table of the outcomes in several reports of the same suite version, one
// column for each report. Cases with different outcomes are in bold.
func Matrix(reports []*Report) string {
	var b strings.Builder
	b.WriteString("| case | level |")
	for _, r := range reports {
		fmt.Fprintf(&b, " %s %s |", cell(r.Picker.Name), cell(r.Picker.Version))
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(reports)) + "\n")
	for _, c := range Cases() {
		outcomes := make([]Outcome, len(reports))
		for i, r := range reports {
			outcomes[i] = "–"
			if at := slices.IndexFunc(r.Results, func(x Result) bool { return x.ID == c.ID }); at >= 0 {
				outcomes[i] = r.Results[at].Outcome
			}
		}
		name := "`" + c.ID + "`"
		if len(slices.Compact(slices.Clone(outcomes))) > 1 {
			name = "**" + name + "**"
		}
		fmt.Fprintf(&b, "| %s | %s |", name, c.Level)
		for _, o := range outcomes {
			fmt.Fprintf(&b, " %s |", o)
		}
		b.WriteString("\n")
	}
	for _, l := range Levels {
		fmt.Fprintf(&b, "| passed | %s |", l)
		for _, r := range reports {
			n := r.Summary[l]
			fmt.Fprintf(&b, " %d of %d |", n[Pass], n[Pass]+n[Fail]+n[Inconclusive])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Runs returns a Markdown table of the pickers and dates of several reports.
func Runs(reports []*Report) string {
	var b strings.Builder
	b.WriteString("| picker | version | program | command | date | suite |\n|---|---|---|---|---|---|\n")
	for _, r := range reports {
		p := r.Picker
		fmt.Fprintf(&b, "| %s | %s | `%s` | `%s` | %s | %s |\n", cell(p.Name), cell(p.Version), cell(p.Source), cell(p.Command), r.Date, r.SuiteVersion)
	}
	return b.String()
}

// Catalog returns a Markdown table of all cases.
func Catalog() string {
	var b strings.Builder
	b.WriteString("| case | level | test and expected answer | source |\n|---|---|---|---|\n")
	for _, c := range Cases() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.ID, c.Level, cell(c.Test), cell(c.Source))
	}
	return b.String()
}
