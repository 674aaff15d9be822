package clusters

import (
	"math"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
)

var pool = federation.PoolKey{Namespace: "lab", Name: "pool"}

// control runs one [federation.Core] per cluster.
type control struct {
	w      *world
	secret *filter.Secret
	cores  []*federation.Core
	hots   []*filter.Hot
	seen   []*federation.View
	boots  uint64
}

const (
	lease    = 5 * time.Second
	tick     = .1
	describe = .25
	hotMost  = 100_000
)

func (w *world) openControl() error {
	secret, err := filter.NewSecret([]byte("the secret of a simulation"))
	if err != nil {
		return err
	}
	n := len(w.clusters)
	c := &control{w: w, secret: secret, cores: make([]*federation.Core, n), hots: make([]*filter.Hot, n), seen: make([]*federation.View, n), boots: w.o.Seed << 16}
	w.control = c
	for i := range n {
		if err := c.start(i); err != nil {
			return err
		}
		// The ticks of clusters are not synchronous.
		offset := tick * float64(i) / float64(n)
		w.at(offset, func() { c.tick(i) })
		w.at(offset, func() { c.publish(i) })
	}
	return nil
}

// start starts the picker of a cluster without any state.
func (c *control) start(i int) error {
	w, s := c.w, c.w.clusters[i]
	c.boots++
	o := federation.Options{Self: s.name, Replica: s.name, Boot: c.boots << 8, Secret: c.secret, Lease: lease}
	for j, other := range w.clusters {
		if j != i && w.o.Policy != Alone {
			o.Peers = append(o.Peers, federation.PeerOptions{Name: other.name, Targets: []string{other.name}, Export: []string{"lab/*"}, Accept: []string{"lab/*"}})
		}
	}
	core, err := federation.New(o, clock(w.now))
	if err != nil {
		return err
	}
	c.cores[i], c.hots[i], c.seen[i] = core, filter.NewHot(hotMost), nil
	if w.o.Policy == Price { // the other policies need no filters
		core.SetHot(pool, c.hots[i])
	}
	s.hops = federation.NewHops(c.secret, s.name)
	s.fleet = remotecluster.New(remotecluster.Options{Self: s.name, Pool: pool, Use: remotecluster.UseAlways, Hops: s.hops})
	return nil
}

// hot records a prompt that a cluster serves.
func (c *control) hot(s *site, keys []block.Key) {
	if c.w.o.Policy == Price {
		c.hots[s.index].Touch(keys)
	}
}

func (c *control) tick(i int) {
	w := c.w
	if w.now > w.o.Length+drained/2 {
		return
	}
	w.at(w.now+tick, func() { c.tick(i) })
	if w.now < w.clusters[i].deadTil {
		return
	}
	c.carry(i, c.cores[i].Tick(clock(w.now), nil))
	if v := c.cores[i].View(clock(w.now)); v != c.seen[i] {
		c.seen[i] = v
		w.clusters[i].fleet.Update(v)
	}
}

// carry sends messages. Targets and links are names of clusters.
func (c *control) carry(from int, out []federation.Send) {
	w := c.w
	for _, m := range out {
		to := w.named(m.To)
		if to == nil || w.cut(from, to.index) {
			continue
		}
		w.out.Control += uint64(len(m.Frame))
		core := c.cores[to.index]
		w.at(w.now+w.roundTrip(from, to.index)/2, func() {
			if w.now < to.deadTil || c.cores[to.index] != core || w.cut(from, to.index) {
				return
			}
			c.carry(to.index, core.Receive(w.clusters[from].name, w.clusters[from].name, m.Frame, clock(w.now), nil))
		})
	}
}

// publish updates the pool of a cluster in its core.
func (c *control) publish(i int) {
	w, s := c.w, c.w.clusters[i]
	if w.now > w.o.Length+drained/2 {
		return
	}
	w.at(w.now+describe, func() { c.publish(i) })
	if w.now < s.deadTil {
		return
	}
	e := federation.Export{Pool: pool, Price: price(&cost)}
	least, sum, n := math.Inf(1), 0.0, 0.0
	for _, g := range s.engines {
		if g.down {
			continue
		}
		e.Load.Requests += g.requests
		e.Load.Waiting += g.waiting
		e.Load.Queued += g.queued
		wait := g.wait(w.now)
		least, sum, n = min(least, wait), sum+wait, n+1
	}
	if n > 0 {
		e.Ready = []federation.Ready{{Model: "m", Role: uint8(endpoint.RoleDecode), Count: int(n)}}
		e.Load.Wait, e.Load.MeanWait = time.Duration(least*float64(time.Second)), time.Duration(sum/n*float64(time.Second))
		e.Load.Saturation = min(sum/n/20, 1)
	}
	e.Gateways = []federation.Address{{HostPort: "192.0.2.1:80"}}
	c.cores[i].SetExports([]federation.Export{e}, clock(w.now))
}

func price(c *endpoint.Cost) federation.Price {
	return federation.Price{Base: c.Base, PerToken: c.PerToken, PerPair: c.PerPair, Step: c.Step, PerSeq: c.PerSeq, PerContext: c.PerContext}
}
