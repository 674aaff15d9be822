package gossip_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
	"github.com/grapevine-epp/grapevine/cluster/gossip"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// heap is a LogStore for benchmarks. Its content is bytes, and the first 8 bytes of a delta are its
// read time.
type heap struct {
	start time.Time
	mu    sync.Mutex
	of    map[string][][]byte
	late  []time.Duration
}

func newHeap(start time.Time) *heap {
	return &heap{start: start, of: map[string][][]byte{}}
}

func (h *heap) Apply(d cluster.Delta) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !d.Local {
		h.late = append(h.late, time.Since(h.start)-time.Duration(binary.LittleEndian.Uint64(d.Payload)))
	}
	return nil
}

func (h *heap) Reset(source string, _ uint64) { h.Forget(source) }

func (h *heap) Forget(source string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, source)
}

func (h *heap) Digest(string) cluster.Digest { return cluster.Digest{} }

func (h *heap) Snapshot(source string, _ int) (cluster.Dump, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return clustertest.Pages(h.of[source]), nil
}

func (h *heap) Stage(source string, _ uint64) (cluster.Stage, error) {
	var pages [][]byte
	return &clustertest.Stage{
		Add: func(p []byte) error { pages = append(pages, p); return nil },
		Take: func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.of[source] = pages
			return nil
		},
	}, nil
}

func (h *heap) Assign(string, cluster.Role) {}

// bencher is a replica with a heap.
type bencher struct {
	*cluster.Node
	log  *cluster.Log
	heap *heap
	addr string
}

func newBencher(b *testing.B, name string, start time.Time, sources, join []string) *bencher {
	b.Helper()
	addr := parts.FreeAddress(b)
	self := cluster.NewMember(name, "bench")
	bus, err := gossip.New(gossip.Options{
		Self: self, Keys: [][]byte{keyA}, Bind: addr, StreamBind: "127.0.0.1:0", Join: join,
	})
	if err != nil {
		b.Fatal(err)
	}
	n := &bencher{Node: cluster.New(cluster.Options{Self: self, Bus: bus, Share: cluster.SharePartitioned}), heap: newHeap(start), addr: addr}
	n.log = n.Log("index", 1, n.heap, cluster.LogOptions{Owned: true})
	if err := n.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = n.Close() })
	n.log.SetSources(sources)
	return n
}

func sourceNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("10.0.0.%d:8000/0", i))
	}
	return names
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPropagation reads 2,000 batches of 50 block changes per second at one of three replicas
// and measures when the other two have applied them.
func BenchmarkPropagation(b *testing.B) {
	const perBatch, bytesPerChange, rate, sources = 50, 10, 2000, 40
	start := time.Now()
	names := sourceNames(sources)
	first := newBencher(b, "a", start, names, nil)
	others := []*bencher{newBencher(b, "b", start, names, []string{first.addr}), newBencher(b, "c", start, names, []string{first.addr})}
	for _, o := range others {
		if _, err := o.WaitSettled(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	used := cpu()
	began := time.Now()
	for i := range b.N {
		if d := time.Until(began.Add(time.Duration(i) * time.Second / rate)); d > time.Millisecond {
			time.Sleep(d)
		}
		p := binary.LittleEndian.AppendUint64(make([]byte, 0, perBatch*bytesPerChange), uint64(time.Since(start)))
		seq := uint64(i / sources)
		first.log.Append(cluster.Delta{Source: names[i%sources], Inc: 1, First: seq, Last: seq, Payload: p[:cap(p)]})
	}
	var late []time.Duration
	for _, o := range others {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			o.heap.mu.Lock()
			n := len(o.heap.late)
			o.heap.mu.Unlock()
			if n == b.N {
				break
			}
		}
		o.heap.mu.Lock()
		if len(o.heap.late) != b.N {
			b.Errorf("%s has %d of %d", o.Self().Name, len(o.heap.late), b.N)
		}
		late = append(late, o.heap.late...)
		o.heap.mu.Unlock()
	}
	took := time.Since(began)
	slices.Sort(late)
	var bytes uint64
	for _, f := range first.Status().Peers[0].Traffic {
		bytes += f.BytesOut
	}
	changes := float64(b.N) * perBatch
	b.ReportMetric(late[len(late)/2].Seconds()*1e3, "p50-ms")
	b.ReportMetric(late[len(late)*99/100].Seconds()*1e3, "p99-ms")
	b.ReportMetric(float64(bytes)/changes-bytesPerChange, "overhead-B/change")
	b.ReportMetric(changes/took.Seconds(), "changes/s")
	b.ReportMetric((cpu()-used).Seconds()/changes*1e6, "cpu-s/Mchange")
}

// BenchmarkNewcomer adds a replica to one with two million entries of 12 bytes and measures the
// time until it has settled.
func BenchmarkNewcomer(b *testing.B) {
	const sources, perSource, size = 50, 40_000, 12
	start := time.Now()
	names := sourceNames(sources)
	first := newBencher(b, "a", start, names, nil)
	for _, n := range names {
		// Too large for the ring, so only a snapshot can provide it.
		first.log.Append(cluster.Delta{Source: n, Inc: 1, First: 0, Last: 0, Payload: make([]byte, 600<<10)})
		first.heap.of[n] = slices.Collect(slices.Chunk(make([]byte, perSource*size), 128<<10))
	}
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		n := newBencher(b, fmt.Sprintf("n%d", i), start, names, []string{first.addr})
		phase, err := n.WaitSettled(b.Context())
		if err != nil || phase != cluster.Settled {
			b.Fatalf("%v %v: %+v", phase, err, n.Status().Logs)
		}
		b.ReportMetric(float64(sources*perSource)/time.Since(began).Seconds()/1e6, "Mentries/s")
		got := 0
		for _, s := range names {
			for _, p := range n.heap.of[s] {
				got += len(p)
			}
		}
		if got != sources*perSource*size {
			b.Fatalf("%d bytes arrived: %+v", got, n.Status().Stats)
		}
		_ = n.Close()
	}
}
