package federation

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

var simSeeds = flag.Int("federation.seeds", 30, "seeds of TestFaults")

// The simulated federation has clusters of one to three replicas. Its network loses, delays,
// duplicates and reorders messages and is cut and repaired, while replicas crash and restart and
// pools are added and removed. An export's Load.Requests is the time of the reading in
// milliseconds, so every receiver can compute its age.
type sim struct {
	rng      *rand.Rand
	now      time.Time
	clusters []*simCluster
	queue    simQueue
	order    int
	faulty   bool
	cut      map[[2]int]bool
	bytes    map[[2]string]int // part bytes, by importing and exporting replica
	boots    uint64
}

type simCluster struct {
	name     string
	replicas []*simReplica
	pools    map[PoolKey]bool
	had      map[PoolKey]time.Time // when a pool last existed
	keys     []block.Key
}

type simReplica struct {
	name    string
	cluster int
	core    *Core // nil: not running
	hot     map[PoolKey]*filter.Hot
}

type simMessage struct {
	at       time.Time
	order    int
	from, to *simReplica
	core     *Core // the receiving process; a restarted one does not get it
	link     string
	frame    []byte
}

type simQueue []*simMessage

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].order < q[j].order
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(*simMessage)) }
func (q *simQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

const (
	simLease = 5 * time.Second
	simTick  = 100 * time.Millisecond
	simRate  = 64 << 10
	simPools = 3
)

var simSecret, _ = filter.NewSecret([]byte("a secret of the federation"))

func newSim(seed uint64) *sim {
	s := &sim{
		rng: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1_000_000, 0), cut: map[[2]int]bool{},
		bytes: map[[2]string]int{}, boots: seed << 20,
	}
	n := 2 + s.rng.IntN(3)
	if s.rng.IntN(10) == 0 {
		n = 10
	}
	for i := range n {
		c := &simCluster{name: fmt.Sprintf("c%d", i), pools: map[PoolKey]bool{}, had: map[PoolKey]time.Time{}}
		for j := range 400 {
			c.keys = append(c.keys, block.Key(uint64(i+1)<<40|uint64(j)*0x9e3779b97f4a7c15|1<<63))
		}
		for j := range 1 + s.rng.IntN(3) {
			c.replicas = append(c.replicas, &simReplica{name: fmt.Sprintf("%s-%d", c.name, j), cluster: i})
		}
		s.clusters = append(s.clusters, c)
	}
	for _, c := range s.clusters {
		for p := range simPools {
			c.pools[simPool(p)] = s.rng.IntN(2) == 0
		}
		for _, r := range c.replicas {
			s.start(r)
		}
	}
	return s
}

func simPool(i int) PoolKey { return PoolKey{"ns", fmt.Sprintf("pool%d", i)} }

// secretPool is exported to no cluster.
var secretPool = PoolKey{"private", "pool"}

// start starts a process.
func (s *sim) start(r *simReplica) {
	c := s.clusters[r.cluster]
	o := Options{Self: c.name, Replica: r.name, Secret: simSecret, Lease: simLease, Drain: 3 * time.Second}
	s.boots += 7919
	o.Boot = s.boots
	for i, other := range s.clusters {
		if i == r.cluster {
			continue
		}
		p := PeerOptions{Name: other.name, Export: []string{"ns/*"}, Accept: []string{"ns/*"}, Rate: simRate}
		for _, t := range other.replicas {
			p.Targets = append(p.Targets, t.name)
		}
		o.Peers = append(o.Peers, p)
	}
	core, err := New(o, s.now)
	if err != nil {
		panic(err)
	}
	r.core, r.hot = core, map[PoolKey]*filter.Hot{}
	for p := range simPools {
		h := filter.NewHot(1_000)
		h.Touch(c.keys)
		r.hot[simPool(p)] = h
		core.SetHot(simPool(p), h)
	}
	s.export(r)
}

func (s *sim) export(r *simReplica) {
	c := s.clusters[r.cluster]
	var list []Export
	for p := range simPools {
		if k := simPool(p); c.pools[k] {
			list = append(list, Export{Pool: k, Load: Load{Requests: s.now.UnixMilli()}, Ready: []Ready{{Count: 1}}})
			c.had[k] = s.now
		}
	}
	list = append(list, Export{Pool: secretPool, Load: Load{Requests: s.now.UnixMilli()}})
	r.core.SetExports(list, s.now)
}

func (s *sim) replica(name string) *simReplica {
	for _, c := range s.clusters {
		for _, r := range c.replicas {
			if r.name == name {
				return r
			}
		}
	}
	return nil
}

// carry sends messages of r. A target is a replica's name. A link is the name of the asking
// replica.
func (s *sim) carry(r *simReplica, out []Send) {
	for _, m := range out {
		to := s.replica(m.To)
		if to == nil {
			panic("no replica " + m.To)
		}
		if len(m.Frame) > 2 && m.Frame[1] == kindPart {
			s.bytes[[2]string{to.name, r.name}] += len(m.Frame)
		}
		copies := 1
		if s.faulty {
			switch s.rng.IntN(20) {
			case 0, 1:
				copies = 0
			case 2:
				copies = 2
			}
		}
		for range copies {
			delay := time.Duration(1+s.rng.IntN(40)) * time.Millisecond
			if s.faulty && s.rng.IntN(30) == 0 {
				delay = time.Duration(s.rng.IntN(12_000)) * time.Millisecond
			}
			s.order++
			heap.Push(&s.queue, &simMessage{at: s.now.Add(delay), order: s.order, from: r, to: to, core: to.core, link: r.name, frame: m.Frame})
		}
	}
}

func (s *sim) cutBetween(a, b int) bool { return s.cut[[2]int{min(a, b), max(a, b)}] }

// step advances to the next tick.
func (s *sim) step(t *testing.T) {
	end := s.now.Add(simTick)
	for len(s.queue) > 0 && !s.queue[0].at.After(end) {
		m := heap.Pop(&s.queue).(*simMessage)
		s.now = m.at
		if m.to.core == nil || m.to.core != m.core || s.cutBetween(m.from.cluster, m.to.cluster) {
			continue
		}
		s.carry(m.to, m.to.core.Receive(s.clusters[m.from.cluster].name, m.link, m.frame, s.now, nil))
	}
	s.now = end
	for _, c := range s.clusters {
		for _, r := range c.replicas {
			if r.core == nil {
				continue
			}
			s.export(r)
			if s.rng.IntN(20) == 0 {
				r.hot[simPool(0)].Touch([]block.Key{block.Key(s.rng.Uint64() | 1<<63)})
			}
			s.carry(r, r.core.Tick(s.now, nil))
			s.check(t, r)
		}
	}
}

// fault injects one fault.
func (s *sim) fault() {
	c := s.clusters[s.rng.IntN(len(s.clusters))]
	r := c.replicas[s.rng.IntN(len(c.replicas))]
	switch s.rng.IntN(6) {
	case 0:
		r.core = nil
	case 1:
		for _, r := range c.replicas {
			r.core = nil
		}
	case 2:
		s.start(r)
	case 3:
		a, b := s.rng.IntN(len(s.clusters)), s.rng.IntN(len(s.clusters))
		k := [2]int{min(a, b), max(a, b)}
		s.cut[k] = !s.cut[k] && a != b
	case 4:
		k := simPool(s.rng.IntN(simPools))
		c.pools[k] = !c.pools[k]
	case 5:
		if r.core != nil {
			s.carry(r, r.core.Leave(s.now, nil))
			r.core = nil
		}
	}
}

// check verifies that a replica's view contains only valid data.
func (s *sim) check(t *testing.T, r *simReplica) {
	v := r.core.View(s.now)
	for _, c := range v.Clusters {
		if c.State == Live && !s.now.Before(c.Until) {
			t.Fatalf("%s: %s is shown live at %s, its lease ended at %s", r.name, c.Name, s.now, c.Until)
		}
		for _, p := range c.Pools {
			if p.Pool == secretPool {
				t.Fatalf("%s has a pool of %s that is not exported", r.name, c.Name)
			}
			age := s.now.Sub(time.UnixMilli(p.Load.Requests))
			if p.Usable(s.now) && age > simLease+2*simTick {
				t.Fatalf("%s uses data of %s about %s from %s ago", r.name, c.Name, p.Pool, age)
			}
		}
	}
	for _, p := range r.core.peers {
		if len(p.sessions) > len(s.clusters[0].replicas)+4*maxSimReplicas || len(p.sources) > simPools || len(p.pools) > simPools {
			t.Fatalf("%s keeps %d sessions, %d sources, %d pools of %s", r.name, len(p.sessions), len(p.sources), len(p.pools), p.Name)
		}
	}
}

const maxSimReplicas = 3

// heal ends all faults.
func (s *sim) heal() {
	s.faulty = false
	s.cut = map[[2]int]bool{}
	for _, c := range s.clusters {
		for _, r := range c.replicas {
			if r.core == nil || r.core.leaving {
				s.start(r)
			}
		}
	}
}

// converged returns the differences from the expected final state.
func (s *sim) converged() (wrong []string) {
	say := func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) }
	for i, c := range s.clusters {
		for _, r := range c.replicas {
			v := r.core.View(s.now)
			for j, other := range s.clusters {
				if i == j {
					continue
				}
				seen := v.Cluster(other.name)
				if seen.State != Live {
					say("%s: %s is %s: %s", r.name, other.name, seen.State, seen.Reason)
				}
				pools := 0
				for _, p := range seen.Pools {
					pools++
					if !other.pools[p.Pool] || !p.Usable(s.now) {
						say("%s: %s has %s, %s", r.name, other.name, p.Pool, p.State)
					}
					if p.FilterNote != "" || p.Filter.Run(other.keys) != len(other.keys) || p.Filter.Has(c.keys[0]) && p.Filter.Has(c.keys[1]) {
						say("%s: filter of %s/%s: %q, %d of %d", r.name, other.name, p.Pool, p.FilterNote, p.Filter.Run(other.keys), len(other.keys))
					}
				}
				for _, there := range other.pools {
					if there {
						pools--
					}
				}
				if pools != 0 {
					say("%s: %s has %d pools too many", r.name, other.name, pools)
				}
			}
			for _, e := range v.Exports {
				for _, told := range e.Acks {
					if want := e.Pool != secretPool; (told.State == Live) != want {
						say("%s: %s is told of %s: %s %s", r.name, told.Cluster, e.Pool, told.State, told.Reason)
					}
				}
			}
		}
	}
	return wrong
}

// TestFaults: under any faults, no data is used after its lease, no cluster receives data that is
// not exported to it, and memory and bandwidth stay bounded. After the faults all replicas converge
// within three leases.
func TestFaults(t *testing.T) {
	for seed := range uint64(*simSeeds) {
		runFaults(t, seed)
	}
}

func runFaults(t *testing.T, seed uint64) {
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	s := newSim(seed)
	s.faulty = true
	began := s.now
	for s.now.Sub(began) < 30*time.Second {
		if s.rng.IntN(10) == 0 {
			s.fault()
		}
		s.step(t)
	}
	s.heal()
	healed := s.now
	for s.now.Sub(healed) < 3*simLease && (len(s.converged()) > 0 || s.now.Sub(healed) < simLease) {
		s.step(t)
	}
	if wrong := s.converged(); len(wrong) > 0 {
		t.Fatalf("seed %d: not converged after %s:\n%s", seed, s.now.Sub(healed), strings.Join(wrong, "\n"))
	}
	most := int(s.now.Sub(began).Seconds()+2)*simRate + 4*filter.MaxPart
	for pair, n := range s.bytes {
		if n > most {
			t.Fatalf("seed %d: %s got %d bytes of filters from %s, limit %d", seed, pair[0], n, pair[1], most)
		}
	}
}
