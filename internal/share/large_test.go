package share

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// BenchmarkLargeSource loads a source of millions of entries into a new replica. It reports the
// longest wait for the group's lock and for the index: at the sender, at the receiver, and
// beforehand on an idle system as a baseline. It also reports the extra memory of both replicas
// during the load, including uncollected garbage; use GOGC=10 to reduce that.
func BenchmarkLargeSource(b *testing.B) {
	for _, millions := range []float64{3.5, 6, 12} {
		b.Run(fmt.Sprintf("%gM", millions), func(b *testing.B) {
			const source = "10.0.0.1:8000/0"
			a := newBenchMember(b, "a", []string{source})
			a.fill(b, source, 0, int(millions*1e6))
			for b.Loop() {
				b.StopTimer()
				runtime.GC()
				idle := watch(a)
				time.Sleep(2 * time.Second)
				group, index := idle()
				b.ReportMetric(group, "idle-group-ms")
				b.ReportMetric(index, "idle-index-ms")
				b.StartTimer()
				n := newBenchMember(b, "n", []string{source}, a.at)
				atSender, atLoader, peak := watch(a), watch(n), heapPeak()
				for n.store.Digest(source) != a.store.Digest(source) {
					time.Sleep(time.Millisecond)
				}
				b.StopTimer()
				most := peak()
				for what, stop := range map[string]func() (group, index float64){"sender": atSender, "loader": atLoader} {
					group, index := stop()
					b.ReportMetric(group, what+"-group-ms")
					b.ReportMetric(index, what+"-index-ms")
				}
				for a.node.Status().Memory.Snapshots > 0 {
					time.Sleep(50 * time.Millisecond)
				}
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(most-m.HeapAlloc)/(millions*1e6), "extra-B/entry")
				_ = n.node.Close()
				n.index = nil
				b.StartTimer()
			}
			b.ReportMetric(millions*1e6*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// A source whose snapshot has many pages is loaded over real streams while its engine writes and
// one of the two members that have it stops. Eventually all have the same content and no load is
// left.
func TestLargeSourceIsLoadedWhileWritten(t *testing.T) {
	const source, batches, more = "10.0.0.1:8000/0", 400, 200
	sources := []string{source}
	a := newBenchMember(t, "a", sources)
	a.fill(t, source, 0, batches*256)
	b := newBenchMember(t, "b", sources, a.at)
	equal := func(m *benchMember) func() string {
		return func() string {
			if got, want := m.store.Digest(source), a.store.Digest(source); got != want {
				v, _ := m.log.Source(source)
				return fmt.Sprintf("%+v and not %+v; %+v", got, want, v)
			}
			return ""
		}
	}
	testkit.Eventually(t, equal(b))
	n := newBenchMember(t, "n", sources, a.at, b.at)
	testkit.Eventually(t, func() string {
		if st := n.node.Status(); st.Memory.Loads == 0 && st.Stats.SnapshotsLoaded == 0 {
			return "no page came"
		}
		return ""
	})
	a.extend(t, source, 0, batches, batches+more/2)
	if err := b.node.Close(); err != nil {
		t.Error(err)
	}
	a.extend(t, source, 0, batches+more/2, batches+more)
	testkit.Eventually(t, equal(n))
	if p := n.log.Position(source); !p.Exact() || p.Next != batches+more {
		t.Errorf("position is %+v", p)
	}
	testkit.Eventually(t, func() string {
		if h := n.node.Status().Memory; h.Loads+h.Pending > 0 {
			return fmt.Sprintf("%+v", h)
		}
		return ""
	})
}

// fill appends entries to a source as the engine's reader would.
func (m *benchMember) fill(b testing.TB, source string, engine, entries int) {
	b.Helper()
	m.extend(b, source, engine, 0, entries/256)
}

// extend appends batches of 256 entries with the given sequence numbers.
func (m *benchMember) extend(b testing.TB, source string, engine, from, to int) {
	b.Helper()
	for seq := from; seq < to; seq++ {
		d := block.Delta{Ops: []block.Op{{Kind: block.OpStore, Root: true, From: 1, N: 256}}}
		for k := range 256 {
			id := uint64(engine+1)<<32 + uint64(seq*256+k+1)
			d.Blocks = append(d.Blocks, block.StoredBlock{
				Hash: block.EngineHash(id * 0x9e3779b97f4a7c15), Key: block.Key(id * 0xd1b54a32d192ed03), Bytes: 61, Tokens: 16,
			})
		}
		v := m.log.Append(cluster.Delta{Source: source, Inc: 1, First: uint64(seq), Last: uint64(seq), Payload: appendPayload(nil, 1, &d)})
		if v != cluster.Applied {
			b.Fatal(v)
		}
	}
}

// watch repeatedly takes the group's lock and the index's. The returned function returns the
// longest waits, in milliseconds.
func watch(m *benchMember) func() (group, index float64) {
	stop, done := make(chan struct{}), make(chan struct{})
	var longest [2]time.Duration
	look := []func(){func() { m.node.Phase() }, func() { m.index.Lookup(block.Source{}, 1) }}
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for i, take := range look {
				begun := time.Now()
				take()
				longest[i] = max(longest[i], time.Since(begun))
			}
			time.Sleep(100 * time.Microsecond)
		}
	}()
	return func() (group, index float64) {
		close(stop)
		<-done
		return longest[0].Seconds() * 1e3, longest[1].Seconds() * 1e3
	}
}

// heapPeak samples the heap. The returned function returns the largest size in use.
func heapPeak() func() uint64 {
	stop, done := make(chan struct{}), make(chan uint64)
	go func() {
		most := uint64(0)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-stop:
				done <- most
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		close(stop)
		return <-done
	}
}
