package server

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// seeded waits until the replicas have one seed and have indexed the engines' caches. The reference
// index has another seed, so its counts are compared. Digests are compared between replicas.
func (g *group) seeded(all ...*Server) {
	g.t.Helper()
	testkit.Eventually(g.t, func() string {
		if late := g.late(); late != "" {
			return late
		}
		want, first := contents(g.alone), contents(all[0])
		for _, s := range all {
			if s.secretRoot() != all[0].secretRoot() {
				return s.o.Name + " has another seed"
			}
			for _, ep := range s.pool.Snapshot().Endpoints {
				k, got := s.share.Knowledge(ep.ID), contents(s)[ep.Address]
				if got.count != want[ep.Address].count || got != first[ep.Address] || k.State != knowledge.Exact {
					return fmt.Sprintf("%s: %s is %v with %v, want %v; %s", s.o.Name, ep.Address, k.State, got, want[ep.Address], describe(s))
				}
			}
		}
		return ""
	})
}

func (s *Server) secretRoot() block.Key { return s.hasher.Root(block.Scope{}) }

func unsecret(o *Options) { o.Secret = "" }

// TestGroupSeed: replicas without a secret have one random seed. A new replica takes it over
// together with the group's index. The seed survives the replica that made it, and the group's
// keys.
func TestGroupSeed(t *testing.T) {
	g := newGroupWith(t, 0, 20, group{share: "partitioned"})
	g.change = unsecret
	a, b := g.add(), g.add()
	g.ready(a, b)
	g.churn(60)
	g.seeded(a, b)
	first := a.secretRoot()
	for _, public := range []string{"", "s"} {
		if h := block.NewHasher(seedOf(public)); h.Root(block.Scope{}) == first {
			t.Error("the seed can be computed")
		}
	}
	next := bytes.Repeat([]byte{8}, 32)
	for _, keys := range [][][]byte{{a.o.Cluster.Keys[0], next}, {next, a.o.Cluster.Keys[0]}, {next}} {
		for _, s := range []*Server{a, b} {
			if err := s.SetKeys(keys); err != nil {
				t.Fatal(err)
			}
		}
	}
	g.stop(a)
	g.churn(5)
	g.change = func(o *Options) {
		unsecret(o)
		o.Cluster.Keys = [][]byte{next}
	}
	c := g.add()
	g.ready(c)
	g.seeded(b, c)
	if c.secretRoot() != first {
		t.Error("the seed ended with who made it")
	}
	if h := c.node.Status().Health; h.State != "joined" {
		t.Error(h.Line)
	}
}

// TestSeedsMeet: while partitioned, each half of a group makes a seed. When the partition ends,
// both use the older one. The half with the newer seed indexes all engines again, and entries under
// different seeds are never mixed.
func TestSeedsMeet(t *testing.T) {
	parts.Full(t)
	g := newGroupWith(t, 0, 10000, group{share: "mesh"})
	g.change = unsecret
	old := g.add()
	g.ready(old)
	join := g.join
	g.join = nil
	young := g.add()
	g.ready(young)
	g.churn(30)
	for _, s := range []*Server{old, young} {
		g.seeded(s)
	}
	if old.secretRoot() == young.secretRoot() {
		t.Fatal("they have met already")
	}
	want := old.secretRoot()
	g.join = append(join, g.join...)
	bridge := g.add() // joins both
	g.ready(bridge)
	g.seeded(old, young, bridge)
	if old.secretRoot() != want {
		t.Error("the older seed went")
	}
	g.churn(20)
	g.seeded(old, young, bridge)
}
