package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
)

// Tolerance is how far a ratio may be above its stored value. Levels depend on the machine's
// load and have more.
const (
	Tolerance      = .10
	levelTolerance = .30
)

// Baseline holds stored figures.
type Baseline struct {
	Commit  string  `json:"commit"`  // that produced them
	Machine string  `json:"machine"` // CPUs and load while they were measured
	Rows    []Row   `json:"rows"`
	Profile []Share `json:"profile"` // of a replica at 40 KB with eight holders
}

// Row is one stored figure.
type Row struct {
	Name  string  `json:"name"`
	Kind  Kind    `json:"kind"`
	Value float64 `json:"value"`
	Error float64 `json:"error,omitempty"`
	Unit  string  `json:"unit"`
	// Was and Reason are set when the stored value was raised.
	Was    float64 `json:"was,omitempty"`
	Reason string  `json:"reason,omitempty"`
}

var errReason = errors.New("gate: a stored figure was raised without a reason")

// ReadBaseline reads a baseline. It returns an error if a raised row has no reason.
func ReadBaseline(path string) (*Baseline, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseBaseline(raw)
}

func parseBaseline(raw []byte) (*Baseline, error) {
	b := &Baseline{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(b); err != nil {
		return nil, fmt.Errorf("gate: baseline: %w", err)
	}
	for _, r := range b.Rows {
		if r.Was > 0 && r.Value > r.Was && r.Reason == "" {
			return nil, fmt.Errorf("%w: %s from %g to %g", errReason, r.Name, r.Was, r.Value)
		}
	}
	return b, nil
}

// Raised returns an error if b raises a row of the earlier baseline by more than the row's error
// without a reason.
func (b *Baseline) Raised(earlier *Baseline) error {
	for _, r := range b.Rows {
		was, ok := earlier.row(r.Name)
		if ok && r.Value > was.Value*1.02+r.Error+was.Error && r.Reason == "" {
			return fmt.Errorf("%w: %s from %g to %g", errReason, r.Name, was.Value, r.Value)
		}
	}
	return nil
}

// Raised compares two baseline files; see [Baseline.Raised].
func Raised(now, earlier []byte) error {
	a, err := parseBaseline(now)
	if err != nil {
		return err
	}
	b, err := parseBaseline(earlier)
	if err != nil {
		return nil // an earlier form
	}
	return a.Raised(b)
}

func (b *Baseline) row(name string) (Row, bool) {
	if b == nil {
		return Row{}, false
	}
	i := slices.IndexFunc(b.Rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return Row{}, false
	}
	return b.Rows[i], true
}

// remark compares a row with the stored one, for progress lines.
func (b *Baseline) remark(r Result) string {
	was, ok := b.row(r.Name)
	if !ok || was.Value == 0 {
		return ""
	}
	return fmt.Sprintf(", stored %.4g (%+.0f%%)", was.Value, 100*(r.Estimate.Median/was.Value-1))
}

// Store merges measured rows into the baseline. Rows that rose beyond their error need a
// reason; it returns an error without one.
func (b *Baseline) Store(m Measured, commit, machine, reason string) error {
	b.Commit, b.Machine = commit, machine
	if len(m.Profile) > 0 {
		b.Profile = m.Profile
	}
	var raised []error
	for _, r := range m.Rows {
		row := Row{Name: r.Name, Kind: r.Kind, Value: round(r.Estimate.Median), Error: round(r.Estimate.Error), Unit: r.Unit}
		i := slices.IndexFunc(b.Rows, func(old Row) bool { return old.Name == r.Name })
		if i < 0 {
			b.Rows = append(b.Rows, row)
			continue
		}
		old := b.Rows[i]
		if row.Value > old.Value*1.02+row.Error+old.Error {
			row.Was, row.Reason = old.Value, reason
			if reason == "" {
				raised = append(raised, fmt.Errorf("%w: %s from %g to %g", errReason, r.Name, old.Value, row.Value))
			}
		}
		b.Rows[i] = row
	}
	return errors.Join(raised...)
}

// round keeps four significant digits.
func round(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// Write writes the baseline to path.
func (b *Baseline) Write(path string) error {
	raw, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}

// worse describes how a row is worse than stored: a ratio or level by more than its tolerance
// beyond its error, a count at all. A direct comparison with the stored commit replaces the
// stored figure. It returns "" if the row is not worse, or not stored.
func (b *Baseline) worse(r Result) string {
	was, ok := b.row(r.Name)
	if !ok {
		return ""
	}
	tolerance := Tolerance
	switch r.Kind {
	case Count:
		tolerance = 0
	case Level:
		tolerance = levelTolerance
	}
	if r.Direct != nil {
		if r.Direct.Median-r.Direct.Error <= 1+tolerance {
			return ""
		}
		return fmt.Sprintf("%s: %.2f ± %.2f times that of commit %s in the same run (%.4g %s, stored %.4g)", r.Name, r.Direct.Median, r.Direct.Error, b.Commit, r.Estimate.Median, r.Unit, was.Value)
	}
	limit := was.Value * (1 + tolerance)
	if r.Estimate.Median-r.Estimate.Error <= limit {
		return ""
	}
	return fmt.Sprintf("%s: %.4g %s, stored %.4g, limit %.4g, error %.2g", r.Name, r.Estimate.Median, r.Unit, was.Value, limit, r.Estimate.Error)
}

// printedGrowth is how many functions are listed for a row that is worse.
const printedGrowth = 15

// Compare returns a line for every row that is worse than stored. Functions whose CPU time grew
// follow, if there are any such rows.
func (b *Baseline) Compare(m Measured) (worse, functions []string) {
	for _, r := range m.Rows {
		if line := b.worse(r); line != "" {
			worse = append(worse, line)
		}
	}
	if len(worse) > 0 {
		functions = grown(b.Profile, m.Profile)
	}
	direct := false // a direct comparison replaces the one with the stored profile
	for _, r := range m.Rows {
		if len(r.Grown) > 0 && !direct {
			functions, direct = nil, true
		}
		for _, f := range r.Grown[:min(len(r.Grown), printedGrowth)] {
			functions = append(functions, r.Name+": "+f)
		}
	}
	return worse, functions
}
