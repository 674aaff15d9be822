package e2e

import (
	"context"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// talk consists of conversations with long, unique first messages.
var talk = workload.Kind{Name: "talk", Shared: 1 << 30, Zipf: 1, SharedTokens: 3000, Turns: 6, UserTokens: 60, Spread: .3, Answer: 20}

// slow engines make cached prefixes valuable.
func slow() sim.Options {
	return sim.Options{Speed: 20, Core: engine.Config{BlockSize: 16, Blocks: 20_000, Model: engine.Model70B}}
}

// TestSessionsStay checks that conversations stay at the engine that has them cached, turn after
// turn.
func TestSessionsStay(t *testing.T) {
	for _, kind := range []envoyconf.Kind{envoyconf.Resilient, envoyconf.Gateway} {
		t.Run(string(kind), func(t *testing.T) {
			r := open(t, rigOptions{kind: kind, engine: slow()})
			src := workload.NewSource(talk, 7, vocab.Name, .5)
			sessions := []*conversation{{s: src.Session(4)}, {s: src.Session(5)}}
			r.hang(faults.HangEngine)
			var wg sync.WaitGroup
			for i, c := range sessions { // the second begins during the first
				wg.Go(func() { c.ask(t, r.client) })
				testkit.Await(t, "the first turn is placed", func() bool { return r.inFlight(0) == int64(i+1) })
			}
			r.hang(faults.HangNone)
			wg.Wait()
			for range 3 {
				for _, c := range sessions {
					c.ask(t, r.client)
				}
			}
			if a, b := sessions[0].engine, sessions[1].engine; a == b {
				t.Errorf("both conversations are at %s, three engines are idle", a)
			}
			r.settle()
			r.clean()
		})
	}
}

// hang sets the hang fault of every engine.
func (r *rig) hang(how faults.Hang) {
	for _, e := range r.fleet.Engines() {
		e.Hang(how)
	}
}

// conversation is a session that a test plays turn by turn.
type conversation struct {
	s      *workload.Session
	said   string
	turns  int
	prompt int // tokens of the previous turn
	engine string
}

// ask plays a turn and checks that the previous turn was cached.
func (c *conversation) ask(t *testing.T, client *workload.Client) {
	t.Helper()
	turn, ok := c.s.Next(c.said)
	if !ok {
		return
	}
	o := client.Do(context.Background(), turn)
	if o.Err != nil {
		t.Error(o.Err)
		return
	}
	if c.turns++; c.turns > 1 {
		if o.Engine != c.engine {
			t.Errorf("turn %d of %s went to %s, the ones before to %s", c.turns, turn.Session, o.Engine, c.engine)
		} else if o.CachedTokens < c.prompt/16*16 {
			t.Errorf("turn %d of %s: %d tokens cached, the turn before had %d", c.turns, turn.Session, o.CachedTokens, c.prompt)
		}
	}
	c.said, c.engine, c.prompt = o.Text, o.Engine, o.PromptTokens
}

// TestHitRatio checks that routing by cached prefixes alone finds almost all possible hits, and far
// more than round robin. The hits of the default policy also depend on waiting times; package
// replay tests those in virtual time.
func TestHitRatio(t *testing.T) {
	play := func(kind envoyconf.Kind) (hits, ideal float64) {
		r := open(t, rigOptions{kind: kind, engine: slow(), server: config(t, prefixOnly)})
		defer r.close()
		tally := r.run(workload.Options{
			Source: workload.NewSource(talk, 3, vocab.Name, .2), Ideal: workload.NewIdeal(vocab.New(), 16),
			Users: 8, Sessions: 40, Seed: 3,
		})
		if kind != envoyconf.Plain {
			r.settle()
			r.clean()
		}
		return tally.HitRatio(), tally.IdealRatio()
	}
	robin, _ := play(envoyconf.Plain)
	hits, ideal := play(envoyconf.Resilient)
	t.Logf("round robin %.3f, grapevine %.3f, ideal %.3f", robin, hits, ideal)
	if hits < ideal-.1 || hits < robin+.15 {
		t.Errorf("hit ratio %.3f, ideal %.3f, round robin %.3f", hits, ideal, robin)
	}
}
