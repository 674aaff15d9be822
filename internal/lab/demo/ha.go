package demo

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// HASummary holds the results of [RunHA].
type HASummary struct {
	Engines, Replicas int
	Steps             []HAStep
	Newcomer          time.Duration // from the start of a process until its state of every engine is exact
	FallbackRequests  uint64        // answered while all replicas were dead
	LastError         error         // of the failed requests
}

// HAStep holds the effect of one step on clients.
type HAStep struct {
	Name             string
	Took             time.Duration
	Requests, Failed uint64
	HitRatio         float64 // as reported by engines, for answers that ended in the step
	SentRatio        float64 // as reported by engines, for requests sent in the step
	Members          string  // group state at the end of the step, as reported by a replica
	cohort           int     // of requests sent in the step
}

// Failed returns the number of failed requests of all steps.
func (s *HASummary) Failed() (n uint64) {
	for _, st := range s.Steps {
		n += st.Failed
	}
	return n
}

// OK reports whether all requests were answered, including those while all replicas were dead.
func (s *HASummary) OK() bool { return s.Failed() == 0 && s.FallbackRequests > 0 && s.Newcomer > 0 }

// haRun is a running RunHA.
type haRun struct {
	*run
	fleet    *fleet.Fleet
	group    *rig.Membership
	keyFile  string
	replicas []*rig.Replica
	load     *workload.Runner
	out      *HASummary
}

// RunHA runs replicas that share by encrypted gossip under a steady load. Replicas are killed,
// restarted, rolled, given another key, and all killed. All processes have ended when it returns.
func RunHA(ctx context.Context, o Options) (*HASummary, error) {
	if o.Step == 0 {
		o.Step = 6 * time.Second
	}
	dir, err := os.MkdirTemp("", "grapevine-ha-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r, err := newRun(o, dir)
	if err != nil {
		return nil, err
	}
	h := &haRun{run: r, out: &HASummary{Engines: o.Engines, Replicas: o.Replicas}}
	if err := h.play(ctx); ctx.Err() != nil {
		return nil, ErrInterrupted
	} else if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return h.out, nil
}

// play starts all processes, performs the steps, and stops all processes.
func (h *haRun) play(ctx context.Context) (err error) {
	var addrs []string
	if h.fleet, addrs, err = h.OpenEngines(); err != nil {
		return err
	}
	defer h.fleet.Close()
	defer func() { rig.StopReplicas(ctx, h.replicas) }()
	if err := h.open(ctx); err != nil {
		return err
	}
	e, url, err := h.StartEnvoy(ctx, "envoy", envoyconf.Params{Endpoints: addrs, ExtProc: rig.Pickers(h.replicas)})
	if err != nil {
		return err
	}
	defer e.Stop(3 * time.Second)
	if h.load, err = StartChats(url); err != nil {
		return err
	}
	defer StopLoad(ctx, h.load)
	for _, s := range h.script() {
		if err := h.step(ctx, s.name, s.do); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	for i := range h.out.Steps {
		s := &h.out.Steps[i]
		s.SentRatio = h.load.Cohort(s.cohort).HitRatio()
	}
	return nil
}

type haAction struct {
	name string
	do   func(context.Context) error
}

// script returns the steps in order.
func (h *haRun) script() []haAction {
	last := len(h.replicas) - 1
	return []haAction{
		{"caches fill", pause(h.o.Step)},
		{"all live", pause(h.o.Step)},
		{"one is killed (kill -9)", func(ctx context.Context) error {
			h.replicas[last].Kill()
			return pause(h.o.Step)(ctx)
		}},
		{"it is started anew", func(ctx context.Context) error { return h.newcomer(ctx, last) }},
		{"all live again", pause(h.o.Step)},
		{"all are rolled, one by one", h.roll},
		{"the key is changed", h.rotate},
		{"all live", pause(h.o.Step)},
		{"all are killed: Envoy alone", h.killAll},
		{"all are started anew", func(ctx context.Context) error {
			for i := range h.replicas {
				if err := h.again(i); err != nil {
					return err
				}
			}
			return h.joined(ctx)
		}},
		{"all live: a second", pause(min(h.o.Step, time.Second))},
		{"all live: one more", pause(min(h.o.Step, time.Second))},
		{"all live", pause(h.o.Step)},
	}
}

func pause(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// step performs one action and records its effect on clients.
func (h *haRun) step(ctx context.Context, name string, do func(context.Context) error) error {
	cohort, before, begun := h.load.NextCohort(), h.load.Totals(), time.Now()
	if err := do(ctx); err != nil {
		return err
	}
	now := h.load.Totals()
	d := now.Minus(&before)
	s := HAStep{cohort: cohort, Name: name, Took: time.Since(begun), Requests: d.Requests, Failed: Failures(&d), HitRatio: d.HitRatio(), Members: "nobody"}
	for _, p := range h.replicas {
		if st, err := p.Status(); err == nil {
			s.Members = st.Cluster.Line
			break
		}
	}
	h.out.Steps = append(h.out.Steps, s)
	if st := h.load.LastError(); st != nil && s.Failed > 0 {
		h.out.LastError = st
	}
	fmt.Fprintf(h.o.Out, "%5.1fs  %-28s %5d requests  %d failed  hits %5.1f%%  %s\n",
		time.Since(h.Start).Seconds(), s.Name, s.Requests, s.Failed, 100*s.HitRatio, s.Members)
	return nil
}

// open starts the replicas and waits until they have joined.
func (h *haRun) open(ctx context.Context) (err error) {
	if h.group, err = rig.NewMembership(h.o.Replicas); err != nil {
		return err
	}
	if h.keyFile, err = h.NewKey("group.key"); err != nil {
		return err
	}
	for i := range h.o.Replicas {
		p, err := h.NewReplica(i, h.group.Flags(i, h.o.Share, h.keyFile)...)
		if err != nil {
			return err
		}
		if err := h.StartReplica(p); err != nil {
			return err
		}
		h.replicas = append(h.replicas, p)
	}
	return h.joined(ctx)
}

func (h *haRun) again(i int) error { return h.StartReplica(h.replicas[i]) }

// newcomer starts replica i and measures the time until its state of every engine is exact.
func (h *haRun) newcomer(ctx context.Context, i int) error {
	begun := time.Now()
	if err := h.again(i); err != nil {
		return err
	}
	p := h.replicas[i]
	err := h.await(ctx, func() string {
		st, err := p.Status()
		switch {
		case err != nil:
			return fmt.Sprintf("%s: %v", p.Name, err)
		case st.Exact() != h.o.Engines || st.Cluster.State != "joined":
			return fmt.Sprintf("%s: %s", p.Name, st)
		}
		return ""
	})
	h.out.Newcomer = time.Since(begun)
	if err != nil {
		return err
	}
	return h.joined(ctx)
}

// roll replaces the replicas one after the other, as a rollout does.
func (h *haRun) roll(ctx context.Context) error {
	for i, p := range h.replicas {
		p.Stop(15 * time.Second)
		if err := h.again(i); err != nil {
			return err
		}
		if err := h.joined(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rotate changes the group's key without downtime: first both keys are accepted, then the new key
// encrypts, then the old key is removed.
func (h *haRun) rotate(ctx context.Context) error {
	file, err := h.NewKey("next.key")
	if err != nil {
		return err
	}
	next, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(h.keyFile)
	if err != nil {
		return err
	}
	for _, keys := range [][]string{{string(old), string(next)}, {string(next), string(old)}, {string(next)}} {
		if err := os.WriteFile(h.keyFile, []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
			return err
		}
		for _, p := range h.replicas {
			if err := p.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
		}
		if err := pause(h.o.Step / 3)(ctx); err != nil {
			return err
		}
		if err := h.joined(ctx); err != nil {
			return err
		}
	}
	return nil
}

// killAll kills all replicas. Envoy then uses its fallback policy.
func (h *haRun) killAll(ctx context.Context) error {
	for _, p := range h.replicas {
		p.Kill()
	}
	before := h.load.Totals()
	if err := pause(h.o.Step)(ctx); err != nil {
		return err
	}
	now := h.load.Totals()
	d := now.Minus(&before)
	h.out.FallbackRequests = d.Requests - Failures(&d)
	return nil
}

// joined waits until every replica is ready and has joined all others.
func (h *haRun) joined(ctx context.Context) error {
	return h.await(ctx, func() string {
		for _, p := range h.replicas {
			switch st, err := p.Status(); {
			case err != nil:
				return fmt.Sprintf("%s: %v", p.Name, err)
			case st.State != "ready" || st.Cluster.State != "joined" || len(st.Members) != len(h.replicas) || st.Exact() != h.o.Engines:
				return fmt.Sprintf("%s: %s", p.Name, st)
			}
		}
		return ""
	})
}

var errHA = fmt.Errorf("not within %v: all joined, and all engines known", rig.StartLimit)

// await waits until amiss returns "".
func (h *haRun) await(ctx context.Context, amiss func() string) error {
	for end := time.Now().Add(rig.StartLimit); ; {
		why := amiss()
		if why == "" {
			return nil
		}
		if time.Now().After(end) {
			for _, p := range h.replicas {
				why += "\n" + p.Name + ":\n" + p.Tail(8)
			}
			return fmt.Errorf("%w; %s", errHA, why)
		}
		if err := pause(20 * time.Millisecond)(ctx); err != nil {
			return err
		}
	}
}
