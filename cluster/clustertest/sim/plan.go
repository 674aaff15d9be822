package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// bound is the time limit for convergence after the last fault. Membership (1.8 s), the lease and
// the ranks of an orphan's readers dominate it.
const bound = 6 * time.Second

// Result is the result of a seed.
type Result struct {
	Seed        uint64
	Failures    []string
	Stats       Stats
	Exact       bool
	Convergence time.Duration // virtual time from the last fault to convergence
	Trace       []string      // the faults
}

// Random makes the plan of a seed.
func Random(seed uint64) Plan {
	rng := rand.New(rand.NewPCG(seed, 0x706c616e))
	p := Plan{
		Seed: seed, Members: 2 + rng.IntN(6), Sources: 1 + rng.IntN(50),
		Every: time.Duration(30+rng.IntN(200)) * time.Millisecond,
		Skew:  rng.IntN(2) == 0, NewIDs: rng.IntN(2) == 0, Gauges: 150 * time.Millisecond,
		Net:   Conditions{Delay: time.Duration(100+rng.IntN(5000)) * time.Microsecond},
		Share: group.SharePartitioned,
	}
	if rng.IntN(4) == 0 {
		p.Share = group.ShareMesh
		p.Sources = 1 + p.Sources/3
	}
	if rng.IntN(2) == 0 {
		p.Net.Drop, p.Net.Dup, p.Net.Reorder = 0.05*rng.Float64(), 0.15*rng.Float64(), 0.1*rng.Float64()
	}
	if rng.IntN(3) == 0 {
		p.Loss = 0.05 * rng.Float64()
	}
	if rng.IntN(3) == 0 {
		p.Ring = 3 + rng.IntN(20)
	}
	if rng.IntN(5) == 0 {
		p.Fail = 0.02 * rng.Float64()
	}
	if rng.IntN(2) == 0 { // small buffers, so that limits are reached
		p.Options = group.Options{
			RingBytes: 200 + rng.IntN(2000), PendingBytes: 200 + rng.IntN(2000), RingDeltas: 2 + rng.IntN(20),
			PageBytes: 64 + rng.IntN(500), Loads: 1 + rng.IntN(8), SnapshotCache: 500 + rng.IntN(4000),
		}
	}
	if rng.IntN(2) == 0 { // snapshots take time and exceed a window of pages
		p.Work = time.Duration(1+rng.IntN(20)) * time.Millisecond / time.Duration(p.Sources)
		p.Pages = rng.IntN(400) / p.Sources
	}
	return p
}

// Zoned makes the plan of a seed with members in two or three zones and relays. Some members are of
// a release without relays.
func Zoned(seed uint64) Plan {
	rng := rand.New(rand.NewPCG(seed, 0x7a6f6e6573))
	p := Random(seed)
	p.Share, p.Zones, p.Members, p.PreviousRelease = group.SharePartitioned, 2+rng.IntN(2), 4+rng.IntN(5), map[int]bool{}
	p.Options.Relay = true
	for i := range p.Members {
		p.PreviousRelease[i] = seed%3 == 0 && rng.IntN(3) == 0
	}
	if seed%5 == 0 {
		p.Version = func(member, process int) uint64 { return 1 + uint64(member/2+process)%2 }
	}
	return p
}

// Large makes the plan of a seed with few sources whose snapshots have hundreds of pages, on a
// network that loses, duplicates and reorders frames.
func Large(seed uint64) Plan {
	rng := rand.New(rand.NewPCG(seed, 0x6c61726765))
	p := Random(seed)
	p.Members, p.Sources, p.Gauges = 3+rng.IntN(2), 1+rng.IntN(3), 0
	p.Pages, p.Work = 60+rng.IntN(200), time.Duration(1+rng.IntN(8))*time.Millisecond
	p.Ring, p.Fail, p.Loss = 1+rng.IntN(20), 0, 0
	p.Options = group.Options{RingDeltas: 2 + rng.IntN(30), Loads: 1 + rng.IntN(3)}
	p.Net.Drop, p.Net.Dup, p.Net.Reorder = 0.04*rng.Float64(), 0.1*rng.Float64(), 0.2*rng.Float64()
	return p
}

// memoryLimit is the limit of a core's memory under a plan.
func (p Plan) memoryLimit() int {
	opt := p.Options.WithDefaults()
	const loads = 64 << 10
	largest := (p.Pages + 7) * 20 // a snapshot larger than the cache is kept alone
	return p.Sources*(opt.RingBytes+2*opt.PendingBytes+256) + max(opt.SnapshotCache, largest) + loads
}

// RunSeed runs the plan of a seed with random faults, heals everything, and waits for convergence.
func RunSeed(seed uint64) Result {
	return RunPlan(Random(seed))
}

// RunPlan is RunSeed with a given plan.
func RunPlan(p Plan) Result {
	w := New(p)
	r := Result{Seed: p.Seed}
	w.Start(0)
	w.StartAll()
	w.Run(w.between(100*time.Millisecond, time.Second))
	for range 1 + w.rng.IntN(10) {
		r.Trace = append(r.Trace, fmt.Sprintf("%v %s", w.now, w.randomFault()))
		w.runWatched(w.between(50*time.Millisecond, 700*time.Millisecond))
		w.checkMemory(p.memoryLimit())
	}
	w.Heal()
	w.StartAll()
	r.Convergence = w.converge()
	r.Exact = w.Exact()
	if p.Work > 0 {
		w.checkStages()
	}
	if !r.Exact && p.Ring == 0 && p.Fail == 0 {
		w.failf("something was lost, though every engine could replay everything")
	}
	if w.Stats.Unsure > 0 && p.Ring == 0 && p.Fail == 0 && p.Version == nil {
		w.failf("%d payloads built on what was not known, though nothing was lost", w.Stats.Unsure)
	}
	for _, m := range w.members {
		if m.up {
			w.count(m)
		}
	}
	r.Stats, r.Failures = w.Stats, w.failures
	r.Stats.Converged = r.Convergence
	return r
}

// converge runs until all members have the complete state, for at most bound after the last fault,
// and returns the time taken.
func (w *World) converge() time.Duration {
	healed := w.now
	w.Run(900 * time.Millisecond)
	w.Quiet(true)
	why := ""
	for w.now-healed < bound {
		w.Run(50 * time.Millisecond)
		if why = w.Converged(); why == "" {
			break
		}
	}
	w.checkMemory(w.plan.memoryLimit())
	if why != "" {
		w.failf("not converged %v after the last fault: %s", bound, why)
	}
	return w.now - healed
}

// randomFault injects one fault and returns its description.
func (w *World) randomFault() string {
	i := w.rng.IntN(len(w.members))
	m := w.members[i]
	switch w.rng.IntN(10) {
	case 0:
		w.Kill(i)
		return "kill " + m.name
	case 1:
		w.Kill(i)
		w.Start(i)
		return "restart " + m.name
	case 2:
		w.StartAll()
		return "start all"
	case 3:
		side := map[int]bool{}
		for j := range w.members {
			side[j] = w.rng.IntN(2) == 0
		}
		oneWay := w.rng.IntN(3) == 0
		switch {
		case w.plan.Zones > 0 && side[0]: // within a zone
			w.Isolate(i, oneWay)
			return fmt.Sprintf("cut %s from its zone oneway=%v", m.name, oneWay)
		case w.plan.Zones > 0 && side[1]: // at its border
			for j := range w.members {
				side[j] = w.plan.zone(j) == w.plan.zone(i)
			}
		}
		w.Partition(side, oneWay)
		return fmt.Sprintf("partition %v oneway=%v", side, oneWay)
	case 4:
		w.Net.Heal()
		w.topology()
		return "heal"
	case 5:
		what := "restart engines"
		for range 1 + w.rng.IntN(4) {
			e := w.rng.IntN(len(w.engines))
			w.RestartEngine(e)
			what += " " + w.engines[e].name
		}
		return what
	case 6:
		d := w.between(50*time.Millisecond, 1500*time.Millisecond)
		w.Pause(i, d)
		return fmt.Sprintf("pause %s %v", m.name, d)
	case 7:
		j := w.rng.IntN(len(w.members))
		w.Net.Set(i, j, &Conditions{Delay: 20 * time.Millisecond, Rate: 20000, Queue: 200 * time.Millisecond})
		return fmt.Sprintf("slow %s to %s", m.name, w.members[j].name)
	case 8:
		for e := range w.engines {
			if w.rng.IntN(3) == 0 {
				w.Cut(i, e, true)
			}
		}
		return "cut " + m.name + " from engines"
	default:
		w.Drain(i, 800*time.Millisecond)
		return "drain " + m.name
	}
}
