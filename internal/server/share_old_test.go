package server

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/gossip"
	"github.com/grapevine-epp/grapevine/indexer"
)

// oldStore is the index of the release before short payloads: it reads the long
// ones, and pages as plain deltas.
type oldStore struct {
	indexStore
	applied, unreadable *atomic.Int64
}

var errOld = errors.New("an old member was sent what it cannot read")

// Apply implements cluster.LogStore.
func (o oldStore) Apply(d cluster.Delta) error {
	s := o.find(d.Source)
	_, parts, err := readPayload(d.Payload)
	if err != nil {
		o.unreadable.Add(1)
		return errOld
	}
	for i := range parts {
		s.x.Apply(s.src, &parts[i])
	}
	o.applied.Add(1)
	return nil
}

// Stage implements cluster.LogStore.
func (o oldStore) Stage(name string, bytes uint64) (cluster.Stage, error) {
	g, err := o.indexStore.Stage(name, bytes)
	if err != nil {
		return nil, err
	}
	return &oldStage{Stage: g, blocks: g.(*indexStage).blocks}, nil
}

type oldStage struct {
	cluster.Stage
	blocks *indexer.Stage
	headed bool
}

// Page implements cluster.Stage.
func (g *oldStage) Page(p []byte) error {
	if !g.headed {
		g.headed = true
		return g.Stage.Page(p)
	}
	var d indexer.Delta
	if err := indexer.DecodeDelta(p, &d); err != nil {
		return err
	}
	if n := g.blocks.Apply(&d); n.Refused+n.UnknownParent > 0 {
		return errOld
	}
	return nil
}

// oldMember is a member of the release before, which reads no stream itself.
type oldMember struct {
	oldStore
	node *cluster.Node
}

func (g *group) addOld() *oldMember {
	g.t.Helper()
	of := g.replicas[0]
	x, all := &indexShare{wake: make(chan struct{}, 1), s: of}, map[string]*sharedSource{}
	index := indexer.New(indexer.Options{})
	var names []string
	for name, s := range *of.share.byName.Load() {
		names = append(names, name)
		all[name] = &sharedSource{name: name, src: s.src, x: index, mode: modeShared}
	}
	x.byName.Store(&all)
	m := &oldMember{oldStore: oldStore{indexStore{x}, &atomic.Int64{}, &atomic.Int64{}}}
	self := cluster.NewMember("old", "before")
	bus, err := gossip.New(gossip.Options{
		Self: self, Keys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Bind: "127.0.0.1:0", StreamBind: "127.0.0.1:0", Join: g.join,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	m.node = cluster.New(cluster.Options{Self: self, Bus: bus, Share: cluster.ShareMesh, Tuning: tuning})
	name := fmt.Sprintf("%s-%016x", stateIndex, uint64(of.hasher.Root(indexer.Scope{})))
	log := m.node.Log(name, 1, m.oldStore, cluster.LogOptions{Owned: true})
	if err := m.node.Open(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = m.node.Close() })
	log.SetSources(names)
	return m
}

// common waits until all replicas know of what version the oldest member is.
func (g *group) common(version uint64) {
	g.t.Helper()
	g.eventually("the oldest member's version is known", func() string {
		for _, s := range g.replicas {
			if v := s.share.log.Common(); v != version {
				return fmt.Sprintf("%s: %d, want %d", s.o.Name, v, version)
			}
		}
		return ""
	})
}

// A member of the release before comes to a group that writes short payloads, with
// batches that the engines cannot replay any more, follows it, and leaves.
func TestOlderMember(t *testing.T) {
	g := newGroup(t, 2, 8, "mesh")
	g.common(indexVersion)
	g.churn(80)
	g.agree(g.replicas...)
	old := g.addOld()
	g.common(1)
	follows := func() string {
		for address, want := range contents(g.alone) {
			got := old.Digest(sourceName(address, 0))
			if got != (cluster.Digest{Count: want.count, Xor: want.xor}) {
				return fmt.Sprintf("%s: %+v, want %+v", address, got, want)
			}
		}
		return ""
	}
	g.eventually("the old member has caught up", follows)
	g.churn(40)
	g.eventually("the old member follows", follows)
	if old.applied.Load() == 0 || old.unreadable.Load() > 0 {
		t.Errorf("the old member read %d payloads, and could not read %d", old.applied.Load(), old.unreadable.Load())
	}
	if err := old.node.Close(); err != nil {
		t.Fatal(err)
	}
	g.common(indexVersion)
	g.churn(40)
	g.agree(g.replicas...)
}
