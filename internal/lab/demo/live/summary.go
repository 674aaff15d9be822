package live

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/demo"
)

// Write prints the summary as text.
func (s *Summary) Write(w io.Writer) {
	a, b := &s.RoundRobin, &s.Grapevine
	fmt.Fprintf(w, "\n%-33s %14s %14s\n", "", "round robin", "Grapevine")
	fmt.Fprintf(w, "%-33s %14d %14d\n", "requests (after warm-up)", a.Requests, b.Requests)
	fmt.Fprintf(w, "%-33s %14.1f %14.1f\n", "requests/s", a.PerSecond, b.PerSecond)
	fmt.Fprintf(w, "%-33s %13.1f%% %13.1f%%  (ideal %.1f%%)\n", "cached prompt tokens, by engines", 100*a.HitRatio, 100*b.HitRatio, 100*b.Ideal)
	fmt.Fprintf(w, "%-33s %14s %14s  %s\n", "time to first token, p50", demo.Short(a.TTFT50), demo.Short(b.TTFT50), times(a.TTFT50, b.TTFT50))
	fmt.Fprintf(w, "%-33s %14s %14s  %s\n", "time to first token, p90", demo.Short(a.TTFT90), demo.Short(b.TTFT90), times(a.TTFT90, b.TTFT90))
	fmt.Fprintf(w, "%-33s %14d %14d\n\n", "failed requests", a.Failed, b.Failed)
	if s.Killed != "" {
		fmt.Fprintf(w, "%s was killed under load and came back: %d requests failed.\n", s.Killed, b.FailedDuringOutage)
	}
	if s.Shared {
		fmt.Fprintln(w, "The replicas shared index and in-flight load.")
	} else {
		fmt.Fprintln(w, "Each replica read the engines' events itself; in-flight load was not shared.")
	}
	if n := s.Failed(); n > 0 {
		fmt.Fprintf(w, "FAILED: %d requests failed, the last: %v\n", n, cmp.Or(b.LastError, a.LastError))
	} else {
		fmt.Fprintln(w, "OK: no request failed.")
	}
}

// times formats how much shorter b is than a.
func times(a, b time.Duration) string {
	if a <= 0 || b <= 0 {
		return ""
	}
	if b <= a {
		return fmt.Sprintf("%.1f× faster", float64(a)/float64(b))
	}
	return fmt.Sprintf("%.1f× slower", float64(b)/float64(a))
}
