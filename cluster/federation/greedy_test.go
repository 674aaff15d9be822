package federation

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// greedy is a cluster that announces arbitrary filters and sends parts unasked.
type greedy struct {
	*pairRig
	seq, epoch uint64
}

const (
	greedyMost  = 4 << 20             // accepted bytes of its filters
	greedyHalf  = greedyMost / 2 / 64 // buckets of a filter that can be replaced by one of equal size
	greedyFew   = 64                  // smallest filter
	greedyPools = 16
	greedyTime  = 20 * time.Second        // duration of the test
	greedyStep  = 2500 * time.Microsecond // time between rounds
)

// say announces new filters of the given sizes for the first pools.
func (g *greedy) say(buckets ...uint32) {
	p := g.b.peers[0]
	g.seq++
	g.epoch++
	m := say{session: p.sessionID(g.b), at: g.now.Sub(g.b.base), boot: 1, seq: g.seq, lease: simLease, replica: "a-0", secret: simSecret.ID()}
	for i, n := range buckets {
		m.exports = append(m.exports, ack{Export: Export{Pool: simPool(i)}, head: filter.Head{Epoch: g.epoch, Buckets: n, Version: 1}})
	}
	g.b.Receive("a", p.Targets[p.target], m.append(nil), g.now, nil)
}

// part sends a complete filter for a pool in a few bytes: all rows are empty.
func (g *greedy) part(pool int, buckets uint32) {
	p := g.b.peers[0]
	m := partOf{session: p.sessionID(g.b), pool: simPool(pool)}
	m.part = filter.Head{Epoch: g.epoch, Buckets: buckets, Version: 1}.Append(nil)
	m.part = append(m.part, 0, 0) // since version 0, from row 0
	m.part = binary.LittleEndian.AppendUint32(m.part, buckets*4)
	m.part = binary.LittleEndian.AppendUint64(m.part, 0)
	g.b.Receive("a", p.Targets[p.target], m.append(nil), g.now, nil)
}

// memory returns the memory in use after a collection.
func memory() (m runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// large returns the bytes allocated between two readings in objects over 32 KiB.
func large(before, after *runtime.MemStats) int64 {
	n := int64(after.TotalAlloc - before.TotalAlloc)
	for i := range after.BySize {
		n -= int64(after.BySize[i].Size) * int64(after.BySize[i].Mallocs-before.BySize[i].Mallocs)
	}
	return n
}

// TestGreedyExporter: a cluster's filters stay within the accepted memory, both in total and per
// second. Large announcements and frequent restarts of filters do not exceed it.
func TestGreedyExporter(t *testing.T) {
	few := make([]uint32, greedyPools)
	for i := range few {
		few[i] = greedyFew
	}
	for name, round := range map[string]func(g *greedy, n int){
		"larger than it was said to be": func(g *greedy, n int) { g.say(few...); g.part(n%greedyPools, 2*greedyHalf) },
		"never asked for": func(g *greedy, n int) {
			if n == 0 {
				g.say(few...)
			}
			g.epoch++
			g.part(n%greedyPools, 2*greedyHalf)
		},
		"begun again and again":     func(g *greedy, _ int) { g.say(greedyHalf); g.part(0, greedyHalf) },
		"of pools that come and go": func(g *greedy, _ int) { g.say(greedyHalf); g.part(0, greedyHalf); g.say() },
		"large and then small, pool after pool": func(g *greedy, n int) {
			k := n / 500 % greedyPools
			claims := append([]uint32(nil), few[:k+1]...)
			claims[k] = greedyHalf / 2
			if n%500 == 0 {
				g.say(claims...)
			}
			g.part(k, claims[k])
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := &greedy{pairRig: newPair(t, nil, func(_ string, o *Options) { o.Peers[0].MaxFilter = greedyMost })}
			g.a = nil // the receiver of its messages
			g.run(greedyTime, nil)
			before := memory()
			for n := 0; n < int(greedyTime/greedyStep); n++ {
				g.now = g.now.Add(greedyStep)
				g.b.Tick(g.now, nil)
				round(g, n)
			}
			after := memory()
			const slack = 2 << 20 // messages, and views
			if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > greedyMost+slack {
				t.Errorf("%d KiB in use, want at most %d", held>>10, greedyMost>>10)
			}
			seconds := int64(greedyTime/time.Second) + 1
			if made := large(&before, &after); made > seconds*greedyMost {
				t.Errorf("%d KiB allocated in %v, want at most %d per second", made>>10, greedyTime, greedyMost>>10)
			}
			runtime.KeepAlive(g)
		})
	}
}
