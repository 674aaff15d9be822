package live

import (
	"context"
	"fmt"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/demo"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
)

// startTime is the planned time for starting all parts. If starting takes longer, the second phase
// becomes shorter, so that the demo ends at the announced time.
const startTime = 16 * time.Second

// grapevine measures the same load behind an Envoy that asks the replicas. One replica is killed
// half-way and restarted.
func (r *run) grapevine(ctx context.Context, s *Summary) error {
	fleet, addrs, err := r.OpenEngines()
	if err != nil {
		return err
	}
	defer fleet.Close()
	share, err := r.Sharing()
	if err != nil {
		return err
	}
	replicas, err := r.StartReplicas(ctx, share)
	defer func() { rig.StopReplicas(ctx, replicas) }()
	if err != nil {
		return err
	}
	e, url, err := r.StartEnvoy(ctx, "envoy", envoyconf.Params{Endpoints: addrs, ExtProc: rig.Pickers(replicas)})
	if err != nil {
		return err
	}
	defer e.Stop(3 * time.Second)
	w, err := demo.StartChats(url)
	if err != nil {
		return err
	}
	defer demo.StopLoad(ctx, w)
	watch := &watch{run: r, fleet: fleet, runner: w, replicas: replicas, phase: "grapevine", note: "Envoy asks any of the replicas"}
	phase := min(r.o.Phase, time.Until(r.Start.Add(2*r.o.Phase+startTime)))
	end := time.Now().Add(phase)
	if _, err := watch.until(ctx, phase/2); err != nil {
		return err
	}
	victim := replicas[len(replicas)-1]
	victim.Kill()
	victim.Killed, s.Killed = true, victim.Name
	before := w.Totals()
	watch.note = fmt.Sprintf("%s was killed (kill -9): Envoy asks the others", victim.Name)
	if _, err := watch.until(ctx, phase/4); err != nil {
		return err
	}
	if err := r.Restart(ctx, victim); err != nil {
		return err
	}
	watch.note = fmt.Sprintf("%s is back and reads the engines' caches", victim.Name)
	if s.Grapevine, err = watch.until(ctx, time.Until(end)); err != nil {
		return err
	}
	now := w.Totals()
	s.Grapevine.FailedDuringOutage = demo.Failures(&now) - demo.Failures(&before)
	return nil
}
