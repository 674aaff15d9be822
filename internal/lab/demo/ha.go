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

// HASummary is what RunHA measured.
type HASummary struct {
	Engines, Replicas int
	Steps             []HAStep
	Newcomer          time.Duration // from the start of a process until every engine is known exactly
	FallbackRequests  uint64        // answered while no replica lived
	LastError         error         // of the failed requests
}

// HAStep is one step: what was done, and what clients noticed of it.
type HAStep struct {
	Name             string
	Took             time.Duration
	Requests, Failed uint64
	HitRatio         float64 // engine-reported, of the answers that ended in it
	SentRatio        float64 // engine-reported, of the requests that were sent in it
	Members          string  // what a replica says of the group at the end of the step
	cohort           int     // of the requests that were sent in it
}

// Failed returns the number of failed requests of all steps.
func (s *HASummary) Failed() (n uint64) {
	for _, st := range s.Steps {
		n += st.Failed
	}
	return n
}

// OK reports whether nothing failed, and requests were answered throughout.
func (s *HASummary) OK() bool { return s.Failed() == 0 && s.FallbackRequests > 0 && s.Newcomer > 0 }

// haRun is RunHA under way.
type haRun struct {
	*run
	fleet    *fleet.Fleet
	group    *rig.Membership
	keyFile  string
	replicas []*rig.Replica
	load     *workload.Runner
	out      *HASummary
}

// RunHA runs replicas that share by encrypted gossip under a steady load and
// takes them away in all the ways that happen: killed, started anew, rolled, given
// another key, all killed. Everything that it starts has ended when it returns.
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

// play starts everything, performs the steps, and ends everything.
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

// script lists what happens, in order.
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

// step performs one action and notes what clients noticed.
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

// open starts the replicas and waits until they have joined each other.
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

// newcomer starts replica i and measures when it knows every engine exactly.
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

// roll replaces every replica, one after the other, as a rollout does.
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

// rotate changes the group's key while everything runs: both are accepted,
// then the new one encrypts, then the old one is forgotten.
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

// killAll leaves Envoy to its fallback policy.
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

// joined waits until every replica is ready and says that it has joined all others.
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

// await waits until nothing is amiss.
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
