package cluster_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// gate is a LogStore that blocks writes of one source until released.
type gate struct {
	*clustertest.Sums
	shut    string
	entered chan struct{}
	open    chan struct{}
}

func (g *gate) Apply(d cluster.Delta) error {
	if d.Source == g.shut && d.First == 1 {
		close(g.entered)
		<-g.open
	}
	return g.Sums.Apply(d)
}

// Writes of one source wait neither for writes of other sources nor for other operations, and delay
// only operations on their own source.
func TestWritesDoNotWaitForEachOther(t *testing.T) {
	store := &gate{Sums: clustertest.NewSums(), shut: "slow", entered: make(chan struct{}), open: make(chan struct{})}
	n := cluster.New(cluster.Options{Self: cluster.NewMember("a", "test")})
	l := n.Log("index", 1, store, cluster.LogOptions{Owned: true})
	if err := n.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	l.SetSources([]string{"slow", "other"})
	write := func(source string, seq uint64) cluster.Verdict {
		return l.Append(cluster.Delta{Source: source, Inc: 1, First: seq, Last: seq, Payload: make([]byte, 8)})
	}
	for _, s := range []string{"slow", "other"} {
		if v := write(s, 0); v != cluster.Applied {
			t.Fatalf("%s: %v", s, v)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { write("slow", 1) })
	<-store.entered
	for seq := range uint64(100) {
		if v := write("other", seq+1); v != cluster.Applied {
			t.Fatalf("%d: %v", seq, v)
		}
	}
	if p := l.Position("other"); p.Next != 101 {
		t.Errorf("position is %+v", p)
	}
	close(store.open)
	wg.Wait()
	if p := l.Position("slow"); p.Next != 2 {
		t.Errorf("position is %+v", p)
	}
}

// All operations concurrently, for the race detector: writes of many sources, positions, views,
// changes of the source set, and a peer that follows.
func TestConcurrentWrites(t *testing.T) {
	h := clustertest.NewHub()
	a, b := newReplica("a", h, cluster.SharePartitioned), newReplica("b", h, cluster.SharePartitioned)
	names := clustertest.Sources(8)
	a.Start(t, names...)
	b.Start(t, names...)
	defer clustertest.Stop(t, a, b)
	testkit.Eventually(t, func() string { return clustertest.Joined(a, b) })
	for _, s := range names {
		a.Index.Reading(s, true)
	}
	var wg, looks sync.WaitGroup
	var done atomic.Bool
	looks.Go(func() {
		for i := 0; !done.Load(); i++ {
			a.Status()
			a.Index.Sources(nil)
			b.Index.Source(names[i%len(names)])
			a.Index.SetSources(append([]string{fmt.Sprint(i % 3)}, names...))
		}
	})
	const n = 300
	for _, s := range names {
		wg.Go(func() {
			for seq := range uint64(n) {
				if v := a.Append(s, seq); v != cluster.Applied {
					t.Errorf("%s %d: %v", s, seq, v)
				}
				a.Index.Position(s)
			}
		})
	}
	wg.Wait()
	done.Store(true)
	looks.Wait()
	testkit.Eventually(t, func() string {
		for _, s := range names {
			if p := b.Index.Position(s); p.Next != n || p.Lost != 0 || b.Sums.Get(s) != n*(n+1)/2 {
				return fmt.Sprintf("%s: the follower is at %+v with %d", s, p, b.Sums.Get(s))
			}
		}
		return ""
	})
}

// BenchmarkAppend writes 64 sources from GOMAXPROCS goroutines.
func BenchmarkAppend(b *testing.B) {
	h := clustertest.NewHub()
	a := newReplica("a", h, cluster.SharePartitioned)
	if err := a.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer clustertest.Stop(b, a)
	names := clustertest.Sources(64)
	a.Index.SetSources(names)
	var next atomic.Uint64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		source := names[next.Add(1)%64]
		for seq := uint64(0); pb.Next(); seq++ {
			a.Append(source, seq)
		}
	})
}
