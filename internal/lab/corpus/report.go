package corpus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report counts the outcomes of the shapes of a period.
type Report struct {
	Since, Until time.Time
	Newest       time.Time // of all shapes
	Results      []Result  // of the period
	Wrong        []Result  // whose outcome is not the expected one, in any period
}

// Measure checks all shapes, and counts the ones of the days before until. A zero until is the day of
// the newest shape.
func Measure(until time.Time, days int) (Report, error) {
	shapes, err := Shapes()
	if err != nil {
		return Report{}, err
	}
	var r Report
	for _, s := range shapes {
		if s.Date.After(r.Newest) {
			r.Newest = s.Date
		}
	}
	if r.Until = until; until.IsZero() {
		r.Until = r.Newest
	}
	r.Since = r.Until.AddDate(0, 0, -days)
	for _, s := range shapes {
		result := s.Check()
		if result.Got != s.Want {
			r.Wrong = append(r.Wrong, result)
		}
		if !s.Date.Before(r.Since) && !s.Date.After(r.Until) {
			r.Results = append(r.Results, result)
		}
	}
	return r, nil
}

// Count returns the number of shapes in the period with an outcome.
func (r *Report) Count(o Outcome) (n int) {
	for _, x := range r.Results {
		if x.Got == o {
			n++
		}
	}
	return n
}

// Covered returns the share of valid shapes that load or name a replacement, in percent; 100 if
// there are none.
func (r *Report) Covered() float64 {
	all := r.valid()
	return percent(all-r.Count(Unknown), all)
}

func (r *Report) valid() int { return len(r.Results) - r.Count(Faulty) }

func percent(n, of int) float64 {
	if of == 0 {
		return 100
	}
	return 100 * float64(n) / float64(of)
}

// missing counts the refused configurations by the types and parameters that each one lacks, most first.
func (r *Report) missing() []gap {
	found := map[string]int{}
	for _, x := range r.Results {
		if x.Got != Replaced {
			continue
		}
		var names []string
		for _, p := range x.Problems {
			names = append(names, subject(p.Message))
		}
		slices.Sort(names)
		found[strings.Join(slices.Compact(names), ", ")]++
	}
	list := make([]gap, 0, len(found))
	for names, n := range found {
		list = append(list, gap{names, n})
	}
	slices.SortFunc(list, func(a, b gap) int { return cmp.Or(cmp.Compare(b.files, a.files), strings.Compare(a.names, b.names)) })
	return list
}

// gap is a missing feature that keeps a number of configurations from loading.
type gap struct {
	names string
	files int
}

// subject returns the type or the parameter of a message about another picker's setting.
func subject(message string) string {
	if rest, ok := strings.CutPrefix(message, "plugin type "); ok {
		name, _, _ := strings.Cut(rest, " ")
		return name
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(message, "plugin "), " is not supported")
	return strings.Replace(name, ": parameter ", ".", 1)
}

// Text formats the report. verbose lists every shape.
func (r *Report) Text(verbose bool) string {
	var b strings.Builder
	if verbose {
		for _, x := range r.Results {
			fmt.Fprintf(&b, "%s  %-9s %s (%s)\n", x.Date.Format(time.DateOnly), x.Got, x.Name, x.Source)
			for _, p := range x.Problems {
				fmt.Fprintf(&b, "            %s\n", p)
			}
		}
	}
	if verbose {
		b.WriteString("files that would load with:\n")
		for _, g := range r.missing() {
			fmt.Fprintf(&b, "%5d  %s\n", g.files, g.names)
		}
	}
	all := r.valid()
	fmt.Fprintf(&b, "of those published from %s to %s, %.0f%% load with the same behaviour (%d of %d), %.0f%% name a replacement (%d)\n",
		r.Since.Format(time.DateOnly), r.Until.Format(time.DateOnly),
		percent(r.Count(Loads), all), r.Count(Loads), all, percent(r.Count(Replaced), all), r.Count(Replaced))
	if n := r.Count(Unknown); n > 0 {
		fmt.Fprintf(&b, "%d are refused without a replacement\n", n)
	}
	if n := r.Count(Faulty); n > 0 {
		fmt.Fprintf(&b, "%d more are refused by other pickers too\n", n)
	}
	fmt.Fprintf(&b, "newest shape: %s\n", r.Newest.Format(time.DateOnly))
	for _, x := range r.Wrong {
		fmt.Fprintf(&b, "UNEXPECTED: shape %s %s, expected %s\n", x.Name, x.Got, x.Want)
		for _, p := range x.Problems {
			fmt.Fprintf(&b, "            %s\n", p)
		}
	}
	return b.String()
}
