package live

import (
	"context"
	"fmt"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/demo"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

const warmUp = 8 * time.Second // not counted: caches are empty

// watch shows one phase while it runs.
type watch struct {
	run      *run
	fleet    *fleet.Fleet
	runner   *workload.Runner
	replicas []*rig.Replica
	phase    string
	note     string

	begun  time.Time
	warm   *workload.Totals // where counting begins
	last   workload.Totals  // one second ago
	recent []workload.Totals
}

// until shows the phase for d and returns the measurements since its caches were warm.
func (w *watch) until(ctx context.Context, d time.Duration) (demo.Result, error) {
	if w.begun.IsZero() {
		w.begun, w.last = time.Now(), w.runner.Totals()
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return demo.Result{}, ctx.Err()
		case <-tick.C:
		}
		for _, p := range w.replicas {
			select {
			case <-p.Done:
				if !p.Killed {
					return demo.Result{}, fmt.Errorf("%s %w; its last lines:\n%s", p.Name, demo.ErrEnded, p.Tail(12))
				}
			default:
			}
		}
		t := w.runner.Totals()
		if w.warm == nil && time.Since(w.begun) >= warmUp {
			w.warm = &t
		}
		w.run.screen.show(w.view(&t))
	}
	return w.result(), nil
}

func (w *watch) result() demo.Result {
	now := w.runner.Totals()
	t := now
	if w.warm != nil {
		t = now.Minus(w.warm)
	}
	r := demo.Result{
		Requests: t.Requests, Failed: demo.Failures(&now), HitRatio: t.HitRatio(), Ideal: t.IdealRatio(),
		TTFT50: t.TTFT.Quantile(.5), TTFT90: t.TTFT.Quantile(.9), LastError: w.runner.LastError(),
	}
	if w.warm != nil {
		r.PerSecond = float64(t.Requests) / now.At.Sub(w.warm.At).Seconds()
	}
	return r
}

// view describes the last five seconds.
func (w *watch) view(now *workload.Totals) View {
	w.recent = append(w.recent, *now)
	if len(w.recent) > 6 {
		w.recent = w.recent[1:]
	}
	d := now.Minus(&w.recent[0])
	v := View{
		Phase: w.phase, Note: w.note, Elapsed: time.Since(w.run.Start), Total: w.run.total(),
		HitRatio: d.HitRatio(), Ideal: d.IdealRatio(), Requests: int(now.Requests), Failed: int(demo.Failures(now)),
		TTFT: [2]time.Duration{d.TTFT.Quantile(.5), d.TTFT.Quantile(.9)}, Before: w.run.before,
	}
	if span := now.At.Sub(w.recent[0].At).Seconds(); span > 0 {
		v.PerSecond = float64(d.Requests) / span
	}
	for _, e := range w.fleet.Engines() {
		row := EngineRow{Name: e.Name(), Requests: int(d.Engines[e.Name()].Requests), HitRatio: d.Engines[e.Name()].HitRatio()}
		for _, r := range e.Stats() {
			row.Running += r.Engine.Running
			row.Waiting += r.Engine.Waiting
		}
		v.Engines = append(v.Engines, row)
	}
	for _, p := range w.replicas {
		v.Replicas = append(v.Replicas, row(p))
	}
	return v
}

// total is the planned length of the demo: both phases, and the start.
func (r *run) total() time.Duration { return 2*r.o.Phase + 6*time.Second }

// row requests a replica's status.
func row(p *rig.Replica) ReplicaRow {
	row := ReplicaRow{Name: p.Name, State: "killed"}
	if p.Killed {
		return row
	}
	row.State = "no answer"
	var st rig.Status
	if err := p.Read(500*time.Millisecond, &st); err != nil {
		return row
	}
	row.State, row.Decisions, row.Knowledge = st.State, st.Decisions, fmt.Sprintf("%d/%d exact", st.Exact(), len(st.Endpoints))
	return row
}
