package server

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/gossip"
	"github.com/grapevine-epp/grapevine/indexer"
)

// benchMember is a replica's shared index and its way to the others, and
// nothing else.
type benchMember struct {
	store indexStore
	node  *cluster.Node
	log   *cluster.Log
	index *indexer.Index
	at    string
}

func newBenchMember(b testing.TB, name string, sources []string, join ...string) *benchMember {
	b.Helper()
	m := &benchMember{index: indexer.New(indexer.Options{Hasher: indexer.NewHasher(indexer.Seed{})})}
	x, all := &indexShare{wake: make(chan struct{}, 1)}, map[string]*sharedSource{}
	for i, n := range sources {
		all[n] = &sharedSource{name: n, src: indexer.Source{Endpoint: indexer.EndpointID(i)}, x: m.index, mode: modeShared}
	}
	x.byName.Store(&all)
	m.store = indexStore{x}
	self := cluster.NewMember(name, "bench")
	bus, err := gossip.New(gossip.Options{
		Self: self, Keys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Bind: "127.0.0.1:0", StreamBind: "127.0.0.1:0", Join: join,
	})
	if err != nil {
		b.Fatal(err)
	}
	m.node = cluster.New(cluster.Options{Self: self, Bus: bus, Share: cluster.SharePartitioned, Tuning: tuning})
	m.log = m.node.Log("index", 1, m.store, cluster.LogOptions{Owned: true})
	if err := m.node.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.node.Close() })
	m.log.SetSources(sources)
	m.at, _, _ = strings.Cut(bus.Status().Advertised, " ")
	return m
}

// BenchmarkNewcomer loads 2 million entries of 16 sources from a peer over the
// encrypted streams, from the newcomer's start until all digests are equal.
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
