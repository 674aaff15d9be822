package plugins

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// hotPrefix returns a request whose prompt begins with a prefix of the given number of chunks;
// equal names mean equal prefixes.
func hotPrefix(name uint64, chunks, all int, tail uint64) *request.Request {
	r := ask(all * 100)
	for i := range all {
		key := name<<32 + uint64(i)
		if i >= chunks {
			key = tail<<40 + uint64(i)
		}
		r.ChunkKeys = append(r.ChunkKeys, block.Key(key*0x9e3779b97f4a7c15))
	}
	return r
}

// asked sends the same prefix every gap until a request leaves the holder, and returns how many
// stayed. The other endpoint's memory has the given number of blocks of 16 tokens; 0: unknown.
func asked(t *testing.T, gap time.Duration, blocks, most int) int {
	t.Helper()
	other := one{cost: &simple}
	if blocks > 0 {
		other.gauges = &endpoint.Gauges{BlockSize: 16, Blocks: blocks}
	}
	f := newFleet(one{cost: &simple, load: load(6, 0), held: 9_000}, other)
	p := build(t, "predicted-ttft-scorer", "")
	at := t0
	for n := range most {
		c := cycle.New(cycle.Options{Pool: f.pool, Match: f.Match, Sessions: f.sessions, Now: at, Seed: 1}, hotPrefix(1, 90, 100, uint64(n+1)))
		scores := make([]float64, c.Len())
		p.Scorer.Score(c, scores)
		c.Free()
		if scores[1] > scores[0] {
			return n
		}
		at = at.Add(gap)
	}
	return most
}

// TestCopies checks that a frequently requested prefix is copied after some requests, and a rarely
// requested one is not.
func TestCopies(t *testing.T) {
	often := asked(t, 100*time.Millisecond, 0, 1000)
	seldom := asked(t, 10*time.Minute, 0, 1000)
	t.Logf("asked ten times a second: copied after %d requests", often)
	now := 2 * time.Minute / time.Duration(often) // too rare within a minute, and frequent enough within ten
	if large, small := asked(t, now, 1<<20, 1000), asked(t, now, 64, 1000); large == 1000 || small != 1000 {
		t.Errorf("asked every %v: copied after %d requests to a large memory, %d to one that is filled in no time", now, large, small)
	}
	if unknown := asked(t, now, 0, 1000); unknown != 1000 {
		t.Errorf("asked every %v: copied after %d requests to a memory of unknown size", now, unknown)
	}
	if often < 2 || often > 200 || seldom != 1000 {
		t.Errorf("copied after %d requests when asked often, %d when asked seldom", often, seldom)
	}
}

// TestCopiesWhileComputed: while a prefix is computed for the first time, idle engines soon compute
// it too, for requests that would otherwise wait as long. If memory may be full this happens later,
// since a copy evicts other blocks.
func TestCopiesWhileComputed(t *testing.T) {
	stayed := func(memory *endpoint.Gauges) int {
		busy := endpoint.Load{Requests: 1, Waiting: 1, Prefill: 9_000, LastFirst: t0.UnixNano()}
		f := newFleet(one{cost: &simple, load: busy, held: 9_000}, one{cost: &simple, gauges: memory})
		p := build(t, "predicted-ttft-scorer", "")
		for n := range 100 {
			at := t0.Add(time.Duration(n) * time.Millisecond)
			c := cycle.New(cycle.Options{Pool: f.pool, Match: f.Match, Sessions: f.sessions, Now: at, Seed: 1}, hotPrefix(1, 90, 100, uint64(n+1)))
			scores := make([]float64, c.Len())
			p.Scorer.Score(c, scores)
			c.Free()
			if scores[1] > scores[0] {
				return n
			}
		}
		return 100
	}
	room, unknown := stayed(&endpoint.Gauges{BlockSize: 16, Blocks: 1 << 20}), stayed(nil)
	t.Logf("%d waited before one did not, %d where free memory is unknown", room, unknown)
	if room < 1 || room > 3 || unknown <= room || unknown > 10 {
		t.Errorf("%d waited before one did not, %d where free memory is unknown", room, unknown)
	}
}

// TestWorkOfCopies checks that the work of a copy counts at busy engines. It does not count at idle
// ones, if the copying request would have waited as long.
func TestWorkOfCopies(t *testing.T) {
	waited := func(others int) int {
		busy := endpoint.Load{Requests: 1, Waiting: 1, Prefill: 9_000, LastFirst: t0.UnixNano()}
		f := newFleet(one{cost: &simple, load: busy, held: 9_000}, one{cost: &simple, gauges: &endpoint.Gauges{BlockSize: 16, Blocks: 1 << 30}})
		p := build(t, "predicted-ttft-scorer", "")
		leaves := func(q *request.Request) bool {
			c := cycle.New(cycle.Options{Pool: f.pool, Match: f.Match, Sessions: f.sessions, Now: t0, Seed: 1}, q)
			defer c.Free()
			scores := make([]float64, c.Len())
			p.Scorer.Score(c, scores)
			return scores[1] > scores[0]
		}
		for n := range others { // requests with a prefill of a second at either endpoint
			leaves(hotPrefix(uint64(100+n), 0, 190, uint64(1000+n)))
		}
		for n := range 100 {
			if leaves(hotPrefix(1, 90, 100, uint64(n+1))) {
				return n
			}
		}
		return 100
	}
	idle, busy := waited(0), waited(30)
	t.Logf("%d waited before one did not while the engines were idle, %d while they were busy", idle, busy)
	if idle != 1 || busy <= idle {
		t.Errorf("%d waited before one did not while the engines were idle, %d while they were busy", idle, busy)
	}
}
