package demo

import (
	"fmt"
	"io"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// Limits of the verdict.
const (
	faultFailed  = .01             // of the requests after faultGrace
	faultSlower  = 1.2             // factor on the p90 with one engine less
	faultHealthy = 5 * time.Second // from the end of the fault until the engine gets requests again
)

// faultsRow is the Markdown format of a table row in docs/health.md.
const faultsRow = "| %-19s | %11s | %-9s | %19s | %12s | %5s | %7s | %7s |"

// FaultsHeader is the table header of RunFaults.
func FaultsHeader() string {
	return fmt.Sprintf(faultsRow, "fault of one engine", "found after", "as", "failed, first 3 s", "failed, rest", "p90", "answers", "trusted") +
		"\n|---|---|---|---|---|---|---|---|"
}

// line formats a row of the table.
func (s *FaultsSummary) line(r *FaultRow) string {
	share := func(x *workload.Span) string {
		return fmt.Sprintf("%d/%d (%.1f%%)", x.Failed, x.Requests, 100*x.FailedShare())
	}
	cause := ""
	if r.Cause != "" {
		cause = "`" + r.Cause + "`"
	}
	return fmt.Sprintf(faultsRow, r.Case.Name, since(r.Found), cause, share(&r.First), share(&r.Rest),
		fmt.Sprintf("%.2f×", s.slower(r)), since(r.Answered), since(r.Healthy))
}

func since(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// slower returns the p90 during a fault relative to the p90 of the pool without the engine.
func (s *FaultsSummary) slower(r *FaultRow) float64 {
	if s.Fewer.P90 == 0 {
		return 0
	}
	return float64(r.Rest.P90) / float64(s.Fewer.P90)
}

// Problems returns a sentence for each exceeded limit.
func (s *FaultsSummary) Problems() (list []string) {
	add := func(r *FaultRow, format string, args ...any) {
		list = append(list, r.Case.Name+": "+fmt.Sprintf(format, args...))
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		if x := r.Rest.FailedShare(); x > faultFailed {
			add(r, "%.1f%% of requests failed from the third second on, the last with: %v", 100*x, r.Rest.Error)
		}
		if x := s.slower(r); x > faultSlower {
			add(r, "p90 was %.2f times that of the other engines alone", x)
		}
		if r.Answered == 0 || r.Answered > faultHealthy {
			add(r, "the engine did not answer again within %v of the end of the fault", faultHealthy)
		}
		if r.Others > 0 {
			add(r, "%d healthy engines were passed over", r.Others)
		}
	}
	return list
}

// Write prints the reference values of the rows and the verdict.
func (s *FaultsSummary) Write(w io.Writer) {
	fmt.Fprintf(w, "\n%s of %d engines, %.0f requests per second, half of them streamed.\n", QualityCase{Replicas: s.Replicas, Sharing: s.Sharing}, s.Engines, s.Rate)
	fmt.Fprintf(w, "Without faults: %d of %d failed, p50 %s, p90 %s; with one engine taken from the list: %d of %d failed, p50 %s, p90 %s (%s to %s in %d stretches as long as a row's).\n",
		s.All.Failed, s.All.Requests, Short(s.All.P50), Short(s.All.P90), s.Fewer.Failed, s.Fewer.Requests, Short(s.Fewer.P50), Short(s.Fewer.P90),
		Short(s.Windows[0]), Short(s.Windows[len(s.Windows)-1]), len(s.Windows))
	fmt.Fprintf(w, "Each fault lasts %v. p90 is of whole answers to requests sent from its third second on, against that of the pool\n", faultLasts)
	fmt.Fprintln(w, "without the engine; answers: from its end to the first answer of the engine; trusted: until all replicas trust all engines.")
	problems := s.Problems()
	for _, p := range problems {
		fmt.Fprintln(w, "FAILED:", p)
	}
	if len(problems) == 0 {
		fmt.Fprintln(w, "OK: no fault cost more than 1% of requests from its third second on.")
	}
}
