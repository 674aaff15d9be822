package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// startTime is what starting everything may take; where it takes longer, the
// second phase is shorter, so that the end comes when it was promised.
const startTime = 16 * time.Second

// replica is one picker process.
type replica struct {
	*process
	args           []string
	extproc, admin string
	killed         bool
}

// grapevine measures the same load behind an Envoy that asks the replicas, one
// of which is killed half-way and started anew.
func (r *run) grapevine(ctx context.Context, s *Summary) error {
	fleet, addrs, err := r.engines()
	if err != nil {
		return err
	}
	defer fleet.Close()
	share, err := r.sharing()
	if err != nil {
		return err
	}
	replicas, err := r.replicas(ctx, share)
	defer func() { stopReplicas(ctx, replicas) }()
	if err != nil {
		return err
	}
	e, url, err := r.envoy(ctx, "envoy", envoyconf.Params{Endpoints: addrs, ExtProc: pickers(replicas)})
	if err != nil {
		return err
	}
	defer e.stop(3 * time.Second)
	w, err := load(url)
	if err != nil {
		return err
	}
	defer stopLoad(ctx, w)
	watch := &watch{run: r, fleet: fleet, runner: w, replicas: replicas, phase: "grapevine", note: "Envoy asks any of the replicas"}
	phase := min(r.o.Phase, time.Until(r.start.Add(2*r.o.Phase+startTime)))
	end := time.Now().Add(phase)
	if _, err := watch.until(ctx, phase/2); err != nil {
		return err
	}
	victim := replicas[len(replicas)-1]
	victim.kill()
	victim.killed, s.Killed = true, victim.name
	before := w.Tally()
	watch.note = fmt.Sprintf("%s was killed (kill -9): Envoy asks the others", victim.name)
	if _, err := watch.until(ctx, phase/4); err != nil {
		return err
	}
	if err := r.revive(ctx, victim); err != nil {
		return err
	}
	watch.note = fmt.Sprintf("%s is back and reads the engines' caches", victim.name)
	if s.Grapevine, err = watch.until(ctx, time.Until(end)); err != nil {
		return err
	}
	now := w.Tally()
	s.Grapevine.FailedDuringOutage = failures(&now) - failures(&before)
	return nil
}

// pickers returns where Envoy asks replicas.
func pickers(replicas []*replica) []string {
	var out []string
	for _, p := range replicas {
		out = append(out, p.extproc)
	}
	return out
}

// stopReplicas lets all replicas drain at once, or ends them right away when
// the demo was interrupted.
func stopReplicas(ctx context.Context, replicas []*replica) {
	var wg sync.WaitGroup
	for _, p := range replicas {
		wg.Go(func() {
			if ctx.Err() != nil {
				p.kill()
			}
			p.stop(5 * time.Second)
		})
	}
	wg.Wait()
}

// replicas starts the pickers, each with further flags, and waits until they
// are ready.
func (r *run) replicas(ctx context.Context, flags func(i int) []string) ([]*replica, error) {
	var all []*replica
	more := r.o.flags
	if r.o.config != "" {
		path := filepath.Join(r.dir, "config.yaml")
		if err := os.WriteFile(path, []byte(r.o.config), 0o600); err != nil {
			return nil, err
		}
		more = append([]string{"--config", path}, more...)
	}
	for i := range r.o.Replicas {
		ports, err := freePorts(3)
		if err != nil {
			return all, err
		}
		at := func(k int) string { return fmt.Sprintf("127.0.0.1:%d", ports[k]) }
		p := &replica{extproc: at(0), admin: at(2), args: append([]string{
			"serve", "--listen", at(0), "--health", at(1), "--admin", at(2),
			"--endpoints", r.dir + "/endpoints.yaml", "--model", vocab.Name + "=" + r.model,
			"--name", fmt.Sprintf("replica-%d", i+1),
		}, append(flags(i), more...)...)}
		if p.process, err = startProcess(r.dir, fmt.Sprintf("replica-%d", i+1), r.o.Self, p.args...); err != nil {
			return all, err
		}
		all = append(all, p)
	}
	wait, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for _, p := range all {
		if err := p.waitHTTP(wait, "http://"+p.admin+"/readyz"); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (r *run) revive(ctx context.Context, p *replica) (err error) {
	if p.process, err = startProcess(r.dir, p.name, r.o.Self, p.args...); err != nil {
		return err
	}
	p.killed = false
	wait, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return p.waitHTTP(wait, "http://"+p.admin+"/readyz")
}
