package share

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/gossip"
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
)

// benchMember is a replica with only a shared index and its group membership.
type benchMember struct {
	store store
	node  *cluster.Node
	log   *cluster.Log
	index *indexer.Index
	at    string
}

// testIndex returns an Index in which all sources are shared and no stream is read.
func testIndex(sources []string) (*Index, *indexer.Index) {
	index := indexer.New(indexer.Options{Hasher: block.NewHasher(block.Seed{})})
	x, all := &Index{wake: make(chan struct{}, 1)}, map[string]*source{}
	x.o.Log = slog.New(slog.DiscardHandler)
	for i, n := range sources {
		all[n] = &source{name: n, src: block.Source{Endpoint: block.EndpointID(i)}, x: index, mode: plan.Shared, inc: 1}
	}
	x.byName.Store(&all)
	return x, index
}

// append adds a batch to the log as the stream's reader would.
func (m *benchMember) append(t testing.TB, name string, u *events.Update) {
	t.Helper()
	s := m.store.find(name)
	p, inc := s.encode(u, m.log.Common())
	s.local.Store(&localDelta{inc, u.First, u.Delta})
	defer s.local.Store(nil)
	if v := m.log.Append(cluster.Delta{Source: name, Inc: 1, First: u.First, Last: u.Last, Payload: p}); v != cluster.Applied {
		t.Fatal(v)
	}
}

func newBenchMember(b testing.TB, name string, sources []string, join ...string) *benchMember {
	b.Helper()
	x, index := testIndex(sources)
	m := &benchMember{index: index, store: store{x}}
	self := cluster.NewMember(name, "bench")
	bus, err := gossip.New(gossip.Options{
		Self: self, Keys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Bind: "127.0.0.1:0", StreamBind: "127.0.0.1:0", Join: join,
	})
	if err != nil {
		b.Fatal(err)
	}
	m.node = cluster.New(cluster.Options{Self: self, Bus: bus, Share: cluster.SharePartitioned, Tuning: Tuning()})
	m.log = m.node.Log("index", indexVersion, m.store, cluster.LogOptions{Owned: true, Needs: payloadNeeds})
	if err := m.node.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.node.Close() })
	m.log.SetSources(sources)
	m.at, _, _ = strings.Cut(bus.Status().Advertised, " ")
	return m
}

// BenchmarkNewcomer loads 2 million entries of 16 sources from a peer over encrypted streams. It
// measures from the new member's start until all digests are equal.
func BenchmarkNewcomer(b *testing.B) {
	const engines, entries = 16, 2 << 20
	var sources []string
	for i := range engines {
		sources = append(sources, fmt.Sprintf("10.0.0.%d:8000/0", i))
	}
	a := newBenchMember(b, "a", sources)
	for i, s := range sources {
		a.fill(b, s, i, entries/engines)
	}
	for b.Loop() {
		n := newBenchMember(b, "n", sources, a.at)
		for equal := false; !equal; time.Sleep(time.Millisecond) {
			equal = true
			for _, s := range sources {
				equal = equal && n.store.Digest(s) == a.store.Digest(s)
			}
		}
		b.StopTimer()
		_ = n.node.Close()
		n.index = nil
		runtime.GC()
		b.StartTimer()
	}
	b.ReportMetric(float64(entries)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

// used returns this process's CPU time.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
