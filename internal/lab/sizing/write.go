package sizing

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"
)

// notes adds what a reader has to know about the result.
func (a *Answer) notes(units int, sizes map[int]*Size) {
	q := a.question
	note := func(format string, args ...any) { a.Notes = append(a.Notes, fmt.Sprintf(format, args...)) }
	last := a.Sizes[len(a.Sizes)-1]
	for i, t := range q.Targets {
		if n := last.Values[i].Beyond; n < fewBeyond {
			note("%s of %s rests on the %d slowest requests of a run; from %d on, the result is reliable. Record %.0f times as long", t.percentile(), a.Load, n, fewBeyond, math.Ceil(fewBeyond/float64(max(n, 1))))
		}
	}
	if last.TooLong > 0 {
		note("%d of %d requests have prompts that no engine has memory for; more engines would not change that, and they do not count", last.TooLong, last.Requests)
	}
	if last.Refused > 0 && units == 0 {
		note("%d of %d requests were refused at %d engines; a refused request misses every target", last.Refused, last.Requests, last.Engines)
	}
	if units == 0 {
		a.unmet(note, &last)
		return
	}
	for n, size := range sizes {
		if n < units && size.Meets {
			note("%d engines meet the targets too, but %d do not: the load is close to the limit at both", size.Engines, size.Engines+len(q.Unit.Kinds))
		}
	}
	chosen := sizes[units]
	if n := a.almost(units, sizes); n > 0 && float64(n) < .8*float64(a.Engines) {
		note("%d engines miss the target by less than a tenth: most of that time is prefill, not queueing", n)
	}
	switch {
	case a.Safe == 0:
		note("the range of no size that was tried is within the targets: use more seeds or a longer recording")
	case a.Safe > a.Engines:
		note("the range of %d engines goes beyond the target; %d engines meet it with their whole range", a.Engines, a.Safe)
	}
	if chosen.E2E.P90 > 0 && q.length()*(1-q.Warmup) < 3*chosen.E2E.P90 {
		note("the load is measured for %.0f s, less than three answers at p90 (%.1f s each): engines may not have been as full as they would become", q.length()*(1-q.Warmup), chosen.E2E.P90)
	}
}

// almost returns the fewest engines that miss no target by more than a tenth, with more prefill than
// wait in the first one; 0 if none was tried.
func (a *Answer) almost(units int, sizes map[int]*Size) int {
	for n := 1; n < units; n++ {
		size := sizes[n]
		if size == nil || size.MeetsSeeds > 0 || size.Grows || size.prompt < .5*float64(size.Values[0].Value) {
			continue
		}
		near := true
		for i, t := range a.question.Targets {
			near = near && float64(size.Values[i].Value) <= 1.1*t.Limit.Seconds()
		}
		if near {
			return size.Engines
		}
	}
	return 0
}

// length returns the seconds that arrivals of the load cover.
func (q *Question) length() float64 { return q.Source.Make(q.Rate, q.Seeds[0]).Length.Seconds() }

// unmet explains why no size meets the targets.
func (a *Answer) unmet(note func(string, ...any), last *Size) {
	q := a.question
	if q.Targets[0].Of == FirstToken && !last.Grows && last.prompt > q.Targets[0].Limit.Seconds() {
		note("%s takes %.2f s without any wait, to compute the part of the prompt that is not cached: choose faster engines, shorter prompts or a later target", q.Targets[0].percentile(), last.prompt)
		return
	}
	if last.units == q.Most {
		note("%d engines do not meet the targets, and more were not tried (--most-engines)", last.Engines)
		return
	}
	note("more engines hardly improve the missed target any more: choose faster engines or a later target")
}

// Write prints the sizes and the answer.
func (a *Answer) Write(w io.Writer) error {
	fmt.Fprintf(w, "%s: %.2f requests per second, %d seeds; target %s\n\n", a.Load, a.Rate, a.Seeds, strings.Join(a.Targets, ", "))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "engines\tTTFT p50\tp90\tp99\tTPOT p90 ms\tE2E p90\tbusy\tprefill\thit\trefused\tmetric\t")
	for _, t := range a.question.Targets {
		fmt.Fprintf(table, "%s (range)\t", t.words())
	}
	fmt.Fprintln(table, "meets\t")
	for i := range a.Sizes {
		s := &a.Sizes[i]
		fmt.Fprintf(table, "%d\t%.2f\t%.2f\t%.2f\t%.0f\t%.1f\t%.0f%%\t%.0f%%\t%.3f\t%d\t%.1f\t", s.Engines, s.TTFT.P50, s.TTFT.P90, s.TTFT.P99, 1e3*s.TPOT.P90, s.E2E.P90, 100*s.Busy, 100*s.Prefill, s.HitRatio, s.Refused, s.Wanted)
		for k := range s.Values {
			v := &s.Values[k]
			fmt.Fprintf(table, "%s (%s-%s)\t", v.Value.round(), v.Low.round(), v.High.round())
		}
		fmt.Fprintf(table, "%s\t\n", a.verdict(s))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", a.sentence())
	for _, n := range a.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	return nil
}

func (a *Answer) verdict(s *Size) string {
	switch {
	case s.Meets && s.Engines == a.Engines:
		return "yes <-"
	case s.Meets:
		return "yes"
	case s.Grows:
		return "no, queues grow"
	case s.MeetsSeeds > 0:
		return fmt.Sprintf("%d of %d seeds", s.MeetsSeeds, s.Seeds)
	}
	return "no"
}

func (a *Answer) sentence() string {
	if a.Engines == 0 {
		return "No number of engines meets the targets."
	}
	noun := "engines meet"
	if a.Engines == 1 {
		noun = "engine meets"
	}
	return fmt.Sprintf("%d %s %s.", a.Engines, noun, strings.Join(a.Targets, " and "))
}

func (s Seconds) round() string {
	switch v := float64(s); {
	case math.IsInf(v, 0) || math.IsNaN(v):
		return "refused"
	case v < 1:
		return time.Duration(v * 1e9).Round(time.Millisecond).String()
	default:
		return fmt.Sprintf("%.1fs", v)
	}
}
