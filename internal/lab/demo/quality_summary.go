package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
)

// line formats a row of the table.
func (q *QualityRow) line() string {
	r := &q.Result
	return fmt.Sprintf("%-33s %9d %7d %7.1f%% %7.1f%% %8s %8s %7.2f %5d/%.2f", q.Case, r.Requests, r.Failed, 100*r.HitRatio, 100*r.Ideal,
		Short(r.TTFT50), Short(r.TTFT90), q.Cores, q.Used, q.Fullest)
}

// QualityHeader is the table header of RunQuality. "used" counts the engines that answered; "most"
// is the share of the busiest one.
func QualityHeader() string {
	return fmt.Sprintf("%-33s %9s %7s %8s %8s %8s %8s %7s %10s", "", "requests", "failed", "hits", "ideal", "p50", "p90", "cores", "used/most")
}

// Limits of the verdict.
const (
	sharedWithin = .15 // allowed loss of one replica's hit ratio
	apartAtLeast = .5  // minimum share of one replica's hit ratio without sharing
	crowdWithin  = 1.1 // factor on load-only's p90 for one application; crowdSlack is added on both sides
	crowdSlack   = 5 * time.Millisecond
)

// Problems returns a sentence for each violated limit:
//
//   - a request failed
//   - replicas that share lost more than 15% of one replica's hit ratio
//   - replicas that do not share lost more than half of one replica's hit ratio, or do not report
//     their fallback
//   - requests of one application did not use all engines, or waited longer than with load-only
func (s *QualitySummary) Problems() (list []string) {
	one := s.Rows[0].Result.HitRatio
	for _, q := range s.Rows {
		if q.Result.Failed > 0 {
			list = append(list, fmt.Sprintf("%s: %d requests failed, the last: %v", q.Case, q.Result.Failed, q.Result.LastError))
		}
		if q.Case.Crowd {
			list = append(list, s.crowdProblems(&q)...)
			continue
		}
		least := one * (1 - sharedWithin)
		if q.Case.Sharing != rig.Shared {
			least = one * apartAtLeast
		}
		if q.Result.HitRatio < least {
			list = append(list, fmt.Sprintf("%s: %.1f%% hits, at least %.1f%% were expected", q.Case, 100*q.Result.HitRatio, 100*least))
		}
		named := func(line string) bool { return strings.Contains(line, "itself") }
		if q.Case.Sharing != rig.Shared && slices.IndexFunc(q.Status, func(l string) bool { return !named(l) }) >= 0 {
			list = append(list, fmt.Sprintf("%s: a replica does not say how it goes on: %q", q.Case, q.Status))
		}
		if q.Case.Sharing == rig.Shared && slices.ContainsFunc(q.Status, named) {
			list = append(list, fmt.Sprintf("%s: a replica is on its own: %q", q.Case, q.Status))
		}
	}
	return list
}

// crowdProblems returns the problems of a one-application row.
func (s *QualitySummary) crowdProblems(q *QualityRow) (list []string) {
	if q.Used < crowdEngines {
		list = append(list, fmt.Sprintf("%s: %d of %d engines were used", q.Case, q.Used, crowdEngines))
	}
	base := s.fewest()
	if base == nil || q.Case.Policy == fewest {
		return list
	}
	if got, most := q.Result.TTFT90+crowdSlack, base.Result.TTFT90+crowdSlack; float64(got) > crowdWithin*float64(most) {
		list = append(list, fmt.Sprintf("%s: p90 is %s, %s where caches are not looked at", q.Case, Short(q.Result.TTFT90), Short(base.Result.TTFT90)))
	}
	return list
}

// fewest returns the reference row of one application, or nil.
func (s *QualitySummary) fewest() *QualityRow {
	for i := range s.Rows {
		if c := s.Rows[i].Case; c.Crowd && c.Policy == fewest {
			return &s.Rows[i]
		}
	}
	return nil
}

// Write prints the replicas' own reports and the verdict.
func (s *QualitySummary) Write(w io.Writer) {
	fmt.Fprintln(w, "\nWhat the replicas say of themselves (grapevine status):")
	for _, q := range s.Rows {
		fmt.Fprintf(w, "  %s\n", q.Case)
		lines := slices.Compact(slices.Sorted(slices.Values(q.Status)))
		for _, l := range lines {
			fmt.Fprintf(w, "    %s\n", l)
		}
	}
	fmt.Fprintln(w)
	one := &s.Rows[0].Result
	for _, q := range s.Rows[1:] {
		r := &q.Result
		if base := s.fewest(); q.Case.Crowd && base != nil {
			fmt.Fprintf(w, "%s: p90 %.2f times, %d engines used, the fullest had %.0f%%.\n", q.Case, float64(r.TTFT90)/float64(base.Result.TTFT90), q.Used, 100*q.Fullest)
			continue
		}
		fmt.Fprintf(w, "%s: hits %+.1f%% against one replica, p90 %.2f times.\n", q.Case, 100*(r.HitRatio/one.HitRatio-1), float64(r.TTFT90)/float64(one.TTFT90))
	}
	problems := s.Problems()
	for _, p := range problems {
		fmt.Fprintln(w, "FAILED:", p)
	}
	if len(problems) == 0 {
		fmt.Fprintln(w, "OK: sharing keeps the hits of one replica, its loss does not end them, one application uses all engines, and no request failed.")
	}
}
