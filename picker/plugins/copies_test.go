package plugins

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// hotPrefix is a request whose prompt begins with a prefix of so many chunks out
// of all; equal names mean equal prefixes.
func hotPrefix(name uint64, chunks, all int, tail uint64) *request.Request {
	r := ask(all * 100)
	for i := range all {
		key := name<<32 + uint64(i)
		if i >= chunks {
			key = tail<<40 + uint64(i)
		}
		r.ChunkKeys = append(r.ChunkKeys, indexer.BlockKey(key*0x9e3779b97f4a7c15))
	}
	return r
}

// asked sends the same prefix every gap until a request leaves the holder, and
// returns how many stayed.
func asked(t *testing.T, gap time.Duration, most int) int {
	t.Helper()
	f := newFleet(one{cost: &simple, load: load(6, 0), held: 9_000}, one{cost: &simple})
	p := build(t, "predicted-ttft-scorer", "")
	at := t0
	for n := range most {
		c := picker.NewCycle(picker.CycleOptions{Pool: f.pool, Matcher: f, Sessions: f.sessions, Now: at, Seed: 1}, hotPrefix(1, 90, 100, uint64(n+1)))
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

// TestCopies holds that a prefix which is asked for often is copied after some
// requests, and one that is asked for seldom is not.
func TestCopies(t *testing.T) {
	often := asked(t, 100*time.Millisecond, 1000)
	seldom := asked(t, 10*time.Minute, 1000)
	t.Logf("asked ten times a second: copied after %d requests", often)
	if often < 2 || often > 200 || seldom != 1000 {
		t.Errorf("copied after %d requests when asked often, %d when asked seldom", often, seldom)
	}
}
