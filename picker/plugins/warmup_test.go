package plugins

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// warmed requests a hot prefix ten times a second, at a holder with six decoding requests, until a
// warm-up of the other endpoint is requested. It returns the number of requests before the warm-up,
// or most if there is none. It fails if a request leaves the holder.
func warmed(t *testing.T, other one, change func(*cycle.Options, *request.Request)) int {
	t.Helper()
	const most = 300
	f := newFleet(one{cost: &simple, load: load(6, 0), held: 9_000}, other)
	p := build(t, "predicted-ttft-scorer", `{"warmUp": true}`)
	for n := range most {
		r := hotPrefix(1, 90, 100, uint64(n+1))
		o := cycle.Options{Pool: f.pool, Match: f.Match, Sessions: f.sessions, Now: t0.Add(time.Duration(n) * 100 * time.Millisecond), Seed: 1, WarmUps: true}
		if change != nil {
			change(&o, r)
		}
		c := cycle.New(o, r)
		scores := make([]float64, c.Len())
		p.Scorer.Score(c, scores)
		c.Plan().Order = append(c.Plan().Order, 0)
		at := c.WarmingUp()
		c.Free()
		switch {
		case at >= 0 && scores[0] > scores[1]:
			return n
		case at >= 0 || scores[1] > scores[0]:
			return most
		}
	}
	return most
}

// TestWarmUp checks that a warm-up copies a frequently requested prefix to an idle endpoint sooner
// than a user's request would, and only if the endpoint can take it.
func TestWarmUp(t *testing.T) {
	idle := one{cost: &simple, gauges: &endpoint.Gauges{BlockSize: 16, Blocks: 1 << 20}}
	free, copied := warmed(t, idle, nil), asked(t, 100*time.Millisecond, 1<<20, 1000)
	t.Logf("warmed up after %d requests, copied after %d", free, copied)
	if free < 2 || free >= copied {
		t.Errorf("warmed up after %d requests, copied after %d", free, copied)
	}
	never := func(what string, other one, change func(*cycle.Options, *request.Request)) {
		t.Helper()
		if n := warmed(t, other, change); n != 300 {
			t.Errorf("%s: warmed up after %d requests", what, n)
		}
	}
	never("nobody sends them", idle, func(o *cycle.Options, _ *request.Request) { o.WarmUps = false })
	never("an adapter that the engine may not have", idle, func(_ *cycle.Options, r *request.Request) { r.Adapter = "a" })
	lora := idle
	lora.gauges = &endpoint.Gauges{BlockSize: 16, Blocks: 1 << 20, LoRA: &endpoint.LoRA{Max: 4, Running: []string{"b"}}}
	never("another adapter", lora, func(_ *cycle.Options, r *request.Request) { r.Adapter = "a" })
	if n := warmed(t, lora, func(_ *cycle.Options, r *request.Request) { r.Adapter = "b" }); n != free {
		t.Errorf("an adapter that runs there: warmed up after %d requests", n)
	}
	busy := idle
	busy.load = endpoint.Load{Requests: 1, Waiting: 1, Prefill: 10, LastFirst: t0.UnixNano()}
	never("somebody waits there", busy, nil)
	prefiller := idle
	prefiller.labels = map[string]string{endpoint.LabelRole: "both"}
	never("roles", prefiller, nil)
	never("every prompt is another one", idle, func(_ *cycle.Options, r *request.Request) {
		for i := range r.ChunkKeys {
			r.ChunkKeys[i] ^= r.ChunkKeys[99] | 1<<block.Key(60)
		}
	})
}

func TestWarmUpWantsCopies(t *testing.T) {
	if _, err := try("predicted-ttft-scorer", `{"warmUp": true, "copyThreshold": 0}`); err == nil {
		t.Error("no copies, and warm-ups")
	}
}
