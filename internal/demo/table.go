package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// View is one state of the live table.
type View struct {
	Phase     string // "round robin", "grapevine"
	Note      string // what is happening, one line
	Elapsed   time.Duration
	Total     time.Duration
	PerSecond float64
	HitRatio  float64          // engine-reported cached tokens / prompt tokens
	Ideal     float64          // the same with one infinite cache
	TTFT      [2]time.Duration // p50, p90
	Requests  int
	Failed    int
	Engines   []EngineRow
	Replicas  []ReplicaRow
}

// EngineRow is one simulated engine.
type EngineRow struct {
	Name     string
	Requests int
	Running  int
	Waiting  int
	HitRatio float64
}

// ReplicaRow is one replica.
type ReplicaRow struct {
	Name      string
	State     string // "ready", "killed", "starting"
	Decisions int
	Knowledge string // "6/6 exact"
}

// render draws v in at most 26 lines of 78 columns.
func render(v View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Grapevine demo  %-12s %s %3.0fs of %.0fs\n", v.Phase, bar(v.Elapsed, v.Total, 24), v.Elapsed.Seconds(), v.Total.Seconds())
	fmt.Fprintf(&b, "%s\n\n", v.Note)
	fmt.Fprintf(&b, "  requests/s %6.1f   requests %6d   failed %d\n", v.PerSecond, v.Requests, v.Failed)
	fmt.Fprintf(&b, "  prefix hits %5.1f%%  (ideal %.1f%%)   TTFT p50 %s  p90 %s\n\n", 100*v.HitRatio, 100*v.Ideal, ms(v.TTFT[0]), ms(v.TTFT[1]))
	fmt.Fprintf(&b, "  %-12s %9s %8s %8s %7s\n", "engine", "requests", "running", "waiting", "hits")
	for _, e := range v.Engines {
		fmt.Fprintf(&b, "  %-12s %9d %8d %8d %6.1f%%\n", e.Name, e.Requests, e.Running, e.Waiting, 100*e.HitRatio)
	}
	fmt.Fprintf(&b, "\n  %-12s %9s %9s   %s\n", "replica", "state", "decisions", "knowledge of engines")
	for _, r := range v.Replicas {
		fmt.Fprintf(&b, "  %-12s %9s %9d   %s\n", r.Name, r.State, r.Decisions, r.Knowledge)
	}
	return b.String()
}

func bar(done, total time.Duration, width int) string {
	n := 0
	if total > 0 {
		n = min(width, int(float64(width)*float64(done)/float64(total)))
	}
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", width-n) + "]"
}

func ms(d time.Duration) string {
	if d >= 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// screen shows Views: in place on a terminal, one line per view elsewhere.
type screen struct {
	w     io.Writer
	tty   bool
	lines int
}

func (s *screen) show(v View) {
	if !s.tty {
		fmt.Fprintf(s.w, "%-12s %4.0fs  %6.1f req/s  hits %5.1f%%  TTFT p50 %-8s p90 %-8s failed %d  %s\n",
			v.Phase, v.Elapsed.Seconds(), v.PerSecond, 100*v.HitRatio, ms(v.TTFT[0]), ms(v.TTFT[1]), v.Failed, v.Note)
		return
	}
	out := render(v)
	if s.lines > 0 {
		fmt.Fprintf(s.w, "\x1b[%dA\x1b[J", s.lines)
	}
	fmt.Fprint(s.w, out)
	s.lines = strings.Count(out, "\n")
}
