package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// action is one entry of a random schedule for an engine.
type action struct {
	at    int // before this step
	abort uint64
	req   Request
}

func drawActions(t *rapid.T, bs, blocks int) []action {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) action {
		a := action{at: rapid.IntRange(0, 60).Draw(t, "at")}
		a.req.ID = rapid.Uint64Range(1, 1<<40).Draw(t, "id")
		if rapid.IntRange(0, 5).Draw(t, "kind") == 0 {
			a.abort = rapid.Uint64Range(0, 20).Draw(t, "abort")
		}
		room := bs * blocks
		a.req.Prompt = rapid.IntRange(1, room*3/4).Draw(t, "prompt")
		a.req.Output = rapid.IntRange(1, room-a.req.Prompt).Draw(t, "output")
		a.req.Adapter = rapid.Uint32Range(0, 3).Draw(t, "adapter")
		family := rapid.IntRange(0, 3).Draw(t, "family")
		a.req.Blocks = names(1000*family, a.req.Prompt/bs)
		return a
	}), 1, 20).Draw(t, "actions")
}

// trace runs a schedule and records every observable, one line per step. With skip, runs of quiet
// steps use Skip.
func trace(t *rapid.T, c Config, actions []action, skip bool) (lines []string, end time.Duration) {
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	told := map[Hash]int{} // block counts derived from the events
	for n := 0; n < 60 || !e.Idle(); n++ {
		for i, a := range actions {
			switch {
			case a.at != n:
			case a.abort > 0:
				e.Abort(actions[int(a.abort)%len(actions)].req.ID)
			default:
				a.req.ID = a.req.ID<<8 | uint64(i)
				if err := e.Submit(a.req); err != nil {
					t.Fatal(err)
				}
			}
		}
		checkInvariants(t, e)
		if skip && n >= 60 {
			k, d := e.Skip(1 << 62)
			n, end = n+k, end+d
		}
		r := e.Step()
		end += r.Duration
		checkEvents(t, e, told, r.Events)
		if n > 100_000 {
			t.Fatalf("no end in sight: %+v", e.Stats())
		}
		if len(r.First)+len(r.Finished)+len(r.Events)+r.Preempted > 0 {
			lines = append(lines, fmt.Sprintf("%d %v %v %v %v %d", n, end, r.First, r.Finished, r.Events, r.Preempted))
		}
	}
	if s := e.Stats(); s.UsedBlocks != 0 {
		t.Fatalf("leaked blocks: %+v", s)
	}
	lines = append(lines, fmt.Sprintf("%+v", e.Stats()))
	return lines, end
}

// checkInvariants checks that only running sequences hold references, and that every registered
// block has the name of its position.
func checkInvariants(t *rapid.T, e *Engine) {
	refs := make([]int32, e.pool.size())
	for _, s := range e.running {
		for i, b := range s.blocks {
			refs[b]++
			if i < s.registered && (!e.pool.cached[b] || e.pool.name[b] != s.hash(i)) {
				t.Fatalf("request %d: block %d is not what it was registered as", s.ID, i)
			}
		}
	}
	for b, n := range refs {
		if e.pool.ref[b] != n {
			t.Fatalf("block %d has %d references, %d holders", b, e.pool.ref[b], n)
		}
	}
	if len(e.running) > e.cfg.MaxSeqs {
		t.Fatalf("%d running", len(e.running))
	}
}

// checkEvents checks that counting stored and removed events yields the prefix cache, including
// copies, and that every parent is listed.
func checkEvents(t *rapid.T, e *Engine, told map[Hash]int, events []Event) {
	for _, ev := range events {
		switch ev.Kind {
		case Stored:
			if ev.HasParent && told[ev.Parent] == 0 {
				t.Fatalf("parent %d of %v is unknown", ev.Parent, ev.Hashes)
			}
			for _, h := range ev.Hashes {
				told[h]++
			}
		case Removed:
			if told[ev.Hash]--; told[ev.Hash] == 0 {
				delete(told, ev.Hash)
			}
		}
	}
	cached := map[Hash]int{}
	for b, ok := range e.pool.cached {
		if ok {
			cached[e.pool.name[b]]++
		}
	}
	if diff := cmp.Diff(cached, told); diff != "" {
		t.Fatalf("events differ from the cache (-cached +announced):\n%s", diff)
	}
}

// TestQuietStepsAreExact checks that Skip does not change any observable, including times to the
// nanosecond.
func TestQuietStepsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bs := rapid.IntRange(1, 20).Draw(t, "block size")
		blocks := rapid.IntRange(4, 40).Draw(t, "blocks")
		c := Config{
			BlockSize: bs, Blocks: blocks, Events: true, Model: Model70B,
			MaxSeqs:        rapid.IntRange(1, 5).Draw(t, "seqs"),
			MaxBatchTokens: rapid.IntRange(1, 60).Draw(t, "budget"),
			MaxAdapters:    rapid.IntRange(0, 2).Draw(t, "adapters"),
		}
		actions := drawActions(t, bs, blocks)
		slow := c
		slow.EveryToken = true
		want, _ := trace(t, slow, actions, false)
		got, end := trace(t, c, actions, false)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("quiet steps differ (-every token +quiet):\n%s", diff)
		}
		skipped, skipEnd := trace(t, c, actions, true)
		if diff := cmp.Diff(want, skipped); diff != "" || end != skipEnd {
			t.Fatalf("skipped steps differ, %v and %v:\n%s", end, skipEnd, diff)
		}
	})
}
