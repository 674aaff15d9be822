package live

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/demo"
)

// View is one state of the live table.
type View struct {
	Phase     string // "round robin", "grapevine"
	Note      string // current activity, one line
	Elapsed   time.Duration
	Total     time.Duration
	PerSecond float64
	HitRatio  float64          // engine-reported cached tokens / prompt tokens
	Ideal     float64          // the same with one infinite cache
	TTFT      [2]time.Duration // p50, p90
	Before    *demo.Result     // of round robin, for comparison; may be nil
	Requests  int
	Failed    int
	Engines   []EngineRow
	Replicas  []ReplicaRow
}

// EngineRow is one simulated engine.
type EngineRow struct {
	Name     string
	Requests int // of the last seconds
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

const (
	tableLines   = 26
	tableColumns = 78
	fixedLines   = 12 // around engines and replicas
)

// render draws v in at most tableLines lines of tableColumns columns.
func render(v View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Grapevine demo  %-12s %s %3.0fs of %.0fs\n", v.Phase, bar(v.Elapsed, v.Total, 24), v.Elapsed.Seconds(), v.Total.Seconds())
	fmt.Fprintf(&b, "%s\n\n", v.Note)
	fmt.Fprintf(&b, "                 req/s   prefix hits   TTFT p50   TTFT p90   requests   failed\n")
	fmt.Fprintf(&b, "  last 5 s     %7.1f   %10.1f%% %10s %10s %10d %8d\n", v.PerSecond, 100*v.HitRatio, demo.Short(v.TTFT[0]), demo.Short(v.TTFT[1]), v.Requests, v.Failed)
	if r := v.Before; r != nil {
		fmt.Fprintf(&b, "  round robin  %7.1f   %10.1f%% %10s %10s %10d %8d\n", r.PerSecond, 100*r.HitRatio, demo.Short(r.TTFT50), demo.Short(r.TTFT90), r.Requests, r.Failed)
	} else {
		fmt.Fprintf(&b, "  ideal cache            %10.1f%%\n", 100*v.Ideal)
	}
	fmt.Fprintf(&b, "\n  %-12s %9s %8s %8s %7s\n", "engine", "last 5 s", "running", "waiting", "hits")
	replicas := min(len(v.Replicas), 6)
	engines := min(len(v.Engines), tableLines-fixedLines-replicas)
	for _, e := range v.Engines[:engines] {
		fmt.Fprintf(&b, "  %-12s %9d %8d %8d %6.1f%%  %s\n", e.Name, e.Requests, e.Running, e.Waiting, 100*e.HitRatio, strings.Repeat("*", min(e.Running+e.Waiting, 24)))
	}
	if more := len(v.Engines) - engines; more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	if replicas > 0 {
		fmt.Fprintf(&b, "\n  %-12s %9s %9s   %s\n", "replica", "state", "decisions", "knowledge of engines")
	}
	for _, r := range v.Replicas[:replicas] {
		fmt.Fprintf(&b, "  %-12s %9s %9d   %s\n", r.Name, r.State, r.Decisions, r.Knowledge)
	}
	if more := len(v.Replicas) - replicas; more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	return clip(b.String())
}

// clip cuts lines that a terminal would wrap.
func clip(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if len(l) > tableColumns {
			lines[i] = l[:tableColumns]
		}
	}
	return strings.Join(lines, "\n")
}

func bar(done, total time.Duration, width int) string {
	n := 0
	if total > 0 {
		n = min(width, int(float64(width)*float64(done)/float64(total)))
	}
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", width-n) + "]"
}

// screen shows Views. On a terminal it redraws in place; otherwise it prints a line for every other
// view, and one for each new note.
type screen struct {
	w     io.Writer
	tty   bool
	lines int // drawn last
	shown int // views
	note  string
}

func (s *screen) show(v View) {
	if !s.tty {
		s.plain(v)
		return
	}
	out := render(v)
	up := ""
	if s.lines > 0 {
		up = fmt.Sprintf("\x1b[%dA\x1b[J", s.lines)
	}
	fmt.Fprint(s.w, up+out)
	s.lines = strings.Count(out, "\n")
}

func (s *screen) plain(v View) {
	if s.note != v.Note {
		s.note = v.Note
		fmt.Fprintf(s.w, "%s: %s\n", v.Phase, v.Note)
	}
	if s.shown++; s.shown%2 == 0 {
		fmt.Fprintf(s.w, "%3.0fs %6.1f req/s  hits %5.1f%%  TTFT p50 %-8s p90 %-8s failed %d\n",
			v.Elapsed.Seconds(), v.PerSecond, 100*v.HitRatio, demo.Short(v.TTFT[0]), demo.Short(v.TTFT[1]), v.Failed)
	}
}
