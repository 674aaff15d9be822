package share

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/gossip"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/wire"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// oldStore is the index of the release before short payloads. It reads self-contained payloads, and
// pages as plain deltas.
type oldStore struct {
	store
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
	g, err := o.store.Stage(name, bytes)
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
	var d block.Delta
	if err := wire.DecodeDelta(p, &d); err != nil {
		return err
	}
	if n := g.blocks.Apply(&d); n.Refused+n.UnknownParent > 0 {
		return errOld
	}
	return nil
}

// addOld starts a member of that release. It reads no stream itself.
func addOld(t *testing.T, sources []string, join ...string) (oldStore, *cluster.Node) {
	t.Helper()
	x, _ := testIndex(sources)
	st := oldStore{store{x}, &atomic.Int64{}, &atomic.Int64{}}
	self := cluster.NewMember("old", "before")
	bus, err := gossip.New(gossip.Options{
		Self: self, Keys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Bind: "127.0.0.1:0", StreamBind: "127.0.0.1:0", Join: join,
	})
	if err != nil {
		t.Fatal(err)
	}
	node := cluster.New(cluster.Options{Self: self, Bus: bus, Share: cluster.ShareMesh, Tuning: Tuning()})
	log := node.Log("index", 1, st, cluster.LogOptions{Owned: true})
	if err := node.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	log.SetSources(sources)
	return st, node
}

// A member of the previous release joins a group that writes short payloads, with batches that
// engines cannot replay any more. It follows the group and leaves.
func TestOlderMember(t *testing.T) {
	sources := []string{"10.0.0.1:8000/0", "10.0.0.2:8000/0"}
	a := newBenchMember(t, "a", sources)
	b := newBenchMember(t, "b", sources, a.at)
	engines := []*decoding{newDecoding(1), newDecoding(2)}
	common := func(version uint64) {
		t.Helper()
		testkit.Eventually(t, func() string {
			for _, m := range []*benchMember{a, b} {
				if v := m.log.Common(); v != version {
					return fmt.Sprintf("%d, want %d", v, version)
				}
			}
			return ""
		})
	}
	churn := func(n int) {
		t.Helper()
		for range n {
			for i, e := range engines {
				a.append(t, sources[i], e.batch(4, 2, 600))
			}
		}
	}
	follows := func(st interface{ Digest(string) cluster.Digest }) func() string {
		return func() string {
			for _, name := range sources {
				if got, want := st.Digest(name), a.store.Digest(name); got != want {
					return fmt.Sprintf("%s: %+v, want %+v", name, got, want)
				}
			}
			return ""
		}
	}
	common(indexVersion)
	churn(80)
	testkit.Eventually(t, follows(b.store))
	old, node := addOld(t, sources, a.at, b.at)
	common(1)
	testkit.Eventually(t, follows(old))
	churn(40)
	testkit.Eventually(t, follows(old))
	if old.applied.Load() == 0 || old.unreadable.Load() > 0 {
		t.Errorf("old member read %d payloads and failed to read %d", old.applied.Load(), old.unreadable.Load())
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	common(indexVersion)
	churn(40)
	testkit.Eventually(t, follows(b.store))
}
