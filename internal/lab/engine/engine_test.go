package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// unit makes durations readable: 1 ms per step, 1 µs per prefill token, 1 ns
// per pair, 100 µs per sequence, 1 ns per decode context token.
var unit = Model{A: 1, B: 1, E: 1, C: 100, D: 1}

func mustNew(t testing.TB, c Config) *Engine {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func mustSubmit(t testing.TB, e *Engine, r Request) {
	t.Helper()
	if err := e.Submit(r); err != nil {
		t.Fatal(err)
	}
}

// run computes one request to its end on an idle engine and returns its
// events.
func run(t testing.TB, e *Engine, r Request) (events []Event) {
	t.Helper()
	mustSubmit(t, e, r)
	for !e.Idle() {
		events = append(events, e.Step().Events...)
	}
	return events
}

func names(from, n int) []Hash {
	h := make([]Hash, n)
	for i := range h {
		h[i] = Hash(from + i)
	}
	return h
}

// step is a Result in short, for comparison.
type step struct {
	Duration          time.Duration
	Prefill, Decoding int
	First, Finished   []uint64
	Preempted         int
}

func take(e *Engine, n int) []step {
	var out []step
	for range n {
		r := e.Step()
		s := step{Duration: r.Duration, Prefill: r.Prefill, Decoding: r.Decoding, Preempted: r.Preempted}
		for _, m := range r.First {
			s.First = append(s.First, m.ID)
		}
		for _, m := range r.Finished {
			s.Finished = append(s.Finished, m.ID)
		}
		out = append(out, s)
	}
	return out
}

func TestStepTimes(t *testing.T) {
	e := mustNew(t, Config{BlockSize: 10, Blocks: 100, MaxBatchTokens: 60, Model: unit})
	mustSubmit(t, e, Request{ID: 1, Prompt: 100, Output: 3, Blocks: names(100, 10)})
	mustSubmit(t, e, Request{ID: 2, Prompt: 20, Output: 2, Blocks: names(200, 2)})
	const ms, us = time.Millisecond, time.Microsecond
	want := []step{
		// 60 tokens of 1: 1 ms + 60 µs + 60·60/2 ns + 100 µs
		{Duration: ms + 60*us + 1800 + 100*us, Prefill: 60},
		// 40 of 1 behind 60, 20 of 2: pairs 40·(60+20) + 20·10
		{Duration: ms + 60*us + 3200 + 200 + 200*us, Prefill: 60, First: []uint64{1, 2}},
		// both decode: contexts 101 and 21
		{Duration: ms + 200*us + 122, Decoding: 2, Finished: []uint64{2}},
		{Duration: ms + 100*us + 102, Decoding: 1, Finished: []uint64{1}},
		{},
	}
	if diff := cmp.Diff(want, take(e, 5)); diff != "" {
		t.Error(diff)
	}
}

func TestLongPrefillThreshold(t *testing.T) {
	e := mustNew(t, Config{BlockSize: 10, Blocks: 100, MaxBatchTokens: 60, LongPrefillThreshold: 25, Model: Model{A: 1}})
	mustSubmit(t, e, Request{ID: 1, Prompt: 55, Output: 1, Blocks: names(100, 5)})
	mustSubmit(t, e, Request{ID: 2, Prompt: 50, Output: 1, Blocks: names(200, 5)})
	mustSubmit(t, e, Request{ID: 3, Prompt: 9, Output: 1})
	const ms = time.Millisecond
	want := []step{
		{Duration: ms, Prefill: 59, First: []uint64{3}, Finished: []uint64{3}}, // 25 + 25 + 9
		{Duration: ms, Prefill: 50, First: []uint64{2}, Finished: []uint64{2}}, // 25 + 25
		{Duration: ms, Prefill: 5, First: []uint64{1}, Finished: []uint64{1}},
	}
	if diff := cmp.Diff(want, take(e, 3)); diff != "" {
		t.Error(diff)
	}
}

func TestMaxSeqsAndFCFS(t *testing.T) {
	e := mustNew(t, Config{BlockSize: 10, Blocks: 100, MaxSeqs: 1, Model: Model{A: 1}})
	for id := range uint64(3) {
		mustSubmit(t, e, Request{ID: id, Prompt: 5, Output: 2})
	}
	const ms = time.Millisecond
	var want []step
	for id := range uint64(3) {
		want = append(want, step{Duration: ms, Prefill: 5, First: []uint64{id}},
			step{Duration: ms, Decoding: 1, Finished: []uint64{id}})
	}
	if diff := cmp.Diff(want, take(e, 6)); diff != "" {
		t.Error(diff)
	}
}

// TestPreemption: two requests outgrow four blocks. The later one is preempted, and finds its first
// block cached when it resumes.
func TestPreemption(t *testing.T) {
	e := mustNew(t, Config{BlockSize: 4, Blocks: 4, Model: Model{A: 1, B: 1}})
	mustSubmit(t, e, Request{ID: 1, Prompt: 7, Output: 6, Blocks: names(10, 1)})
	mustSubmit(t, e, Request{ID: 2, Prompt: 7, Output: 3, Blocks: names(20, 1)})
	const ms, us = time.Millisecond, time.Microsecond
	want := []step{
		{Duration: ms + 14*us, Prefill: 14, First: []uint64{1, 2}}, // both hold 2 blocks
		{Duration: ms, Decoding: 2},                                // token 8 fills the second block
		{Duration: ms, Decoding: 1, Preempted: 1},                  // 1 needs a third block, 2 goes
		{Duration: ms, Decoding: 1},                                // 2 needs two fresh blocks, one is free
		{Duration: ms, Decoding: 1},
		{Duration: ms, Decoding: 1, Finished: []uint64{1}},
		// One block of 2 was evicted: it has 9 tokens, the first 4 still cached.
		{Duration: ms + 5*us, Prefill: 5, Finished: []uint64{2}},
		{},
	}
	if diff := cmp.Diff(want, take(e, 8)); diff != "" {
		t.Error(diff)
	}
	if s := e.Stats(); s.Preemptions != 1 || s.UsedBlocks != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestPrefixHits(t *testing.T) {
	for _, c := range []struct {
		name       string
		warm, req  Request
		wantCached int
	}{
		{"last token is computed", Request{Prompt: 40, Output: 1, Blocks: names(1, 4)}, Request{Prompt: 40, Output: 1, Blocks: names(1, 4)}, 30},
		{"one token more", Request{Prompt: 40, Output: 1, Blocks: names(1, 4)}, Request{Prompt: 41, Output: 1, Blocks: names(1, 4)}, 40},
		{"partial blocks are not cached", Request{Prompt: 39, Output: 1, Blocks: names(1, 4)}, Request{Prompt: 60, Output: 1, Blocks: names(1, 6)}, 30},
		{"generated blocks are cached", Request{Prompt: 15, Output: 26, Blocks: names(1, 4)}, Request{Prompt: 60, Output: 1, Blocks: names(1, 6)}, 40},
		{"the last generated token is never computed", Request{Prompt: 15, Output: 25, Blocks: names(1, 4)}, Request{Prompt: 60, Output: 1, Blocks: names(1, 6)}, 30},
		{"private blocks of the answer", Request{ID: 1, Prompt: 20, Output: 21, Blocks: names(1, 2)}, Request{ID: 2, Prompt: 60, Output: 1, Blocks: names(1, 6)}, 20},
		{"a hole ends the run", Request{Prompt: 40, Output: 1, Blocks: []Hash{1, 2, 3, 4}}, Request{Prompt: 41, Output: 1, Blocks: []Hash{1, 2, 9, 4}}, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := mustNew(t, Config{BlockSize: 10, Blocks: 100})
			run(t, e, c.warm)
			mustSubmit(t, e, c.req)
			r := e.Step()
			if len(r.First) != 1 || r.First[0].Cached != c.wantCached {
				t.Fatalf("first tokens %+v, want one with %d cached", r.First, c.wantCached)
			}
			s := e.Stats()
			if got := int(s.HitTokens); got != c.wantCached {
				t.Errorf("hit counter %d", got)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	e := mustNew(t, Config{BlockSize: 4, Blocks: 20, MaxBatchTokens: 8, Events: true})
	tokens := make([]uint32, 20)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	tag := &Tag{LoRA: "a"}
	req := Request{ID: 1, Prompt: 13, Output: 5, Blocks: names(1, 4), Tokens: tokens, Tag: tag}
	want := []Event{
		{Kind: Stored, Hashes: []Hash{1, 2}, Tokens: tokens[:8], Tag: tag},
		{Kind: Stored, HasParent: true, Parent: 2, Hashes: []Hash{3}, Tokens: tokens[8:12], Offset: 2, Tag: tag},
		{Kind: Stored, HasParent: true, Parent: 3, Hashes: []Hash{4}, Tokens: tokens[12:16], Offset: 3, Tag: tag},
	}
	if diff := cmp.Diff(want, run(t, e, req)); diff != "" {
		t.Error(diff)
	}

	// A full report announces the hit prefix, even if no new block is stored.
	req.ID, req.Report, req.Output = 2, true, 1
	want = []Event{{Kind: Stored, Hashes: []Hash{1, 2, 3}, Tokens: tokens[:12], Tag: tag}}
	if diff := cmp.Diff(want, run(t, e, req)); diff != "" {
		t.Error(diff)
	}

	// A clear is reported with the next step.
	if !e.ResetPrefixCache() {
		t.Fatal("reset refused on an idle engine")
	}
	if r := e.Step(); !r.Idle || len(r.Events) > 0 {
		t.Fatalf("idle step %+v", r)
	}
	got := run(t, e, Request{ID: 3, Prompt: 4, Output: 1, Blocks: names(1, 1)})
	want = []Event{{Kind: Cleared}, {Kind: Stored, Hashes: []Hash{1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestTwins: a prompt that is cached to its end computes its last block again;
// the copy is stored and removed like any block.
func TestTwins(t *testing.T) {
	e := mustNew(t, Config{BlockSize: 4, Blocks: 4, Events: true})
	var events []Event
	for id := range uint64(2) {
		events = append(events, run(t, e, Request{ID: id, Prompt: 8, Output: 1, Blocks: names(1, 2)})...)
	}
	events = append(events, run(t, e, Request{ID: 3, Prompt: 15, Output: 1, Blocks: names(10, 3)})...)
	stores, removals := 0, 0
	for _, ev := range events {
		switch {
		case ev.Kind == Removed && ev.Hash == 2:
			removals++
		case ev.Kind == Stored && ev.Hashes[len(ev.Hashes)-1] == 2:
			stores++
		}
	}
	if stores != 2 || removals != 2 {
		t.Errorf("%d stores and %d removals, want 2 and 2: %+v", stores, removals, events)
	}
}

func TestResetWhileBusy(t *testing.T) {
	e := mustNew(t, Config{BlockSize: 4, Blocks: 8})
	mustSubmit(t, e, Request{ID: 1, Prompt: 5, Output: 3, Blocks: names(1, 1)})
	e.Step()
	if e.ResetPrefixCache() {
		t.Error("reset succeeded while blocks are in use")
	}
}

func TestAbort(t *testing.T) {
	e := mustNew(t, Config{BlockSize: 4, Blocks: 8, MaxSeqs: 1})
	mustSubmit(t, e, Request{ID: 1, Prompt: 5, Output: 9, Blocks: names(1, 1)})
	mustSubmit(t, e, Request{ID: 2, Prompt: 5, Output: 9, Blocks: names(1, 1)})
	mustSubmit(t, e, Request{ID: 3, Prompt: 5, Output: 1, Blocks: names(1, 1)})
	e.Step()
	for _, id := range []uint64{2, 1} {
		if !e.Abort(id) {
			t.Errorf("abort of %d", id)
		}
		if e.Abort(id) {
			t.Errorf("second abort of %d", id)
		}
	}
	if r := e.Step(); len(r.Finished) != 1 || r.Finished[0].ID != 3 || r.Finished[0].Cached != 4 {
		t.Errorf("after the aborts: %+v", r)
	}
	if s := e.Stats(); s.UsedBlocks != 0 || s.Running+s.Waiting != 0 || s.Aborted != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestAdapters(t *testing.T) {
	e := mustNew(t, Config{BlockSize: 4, Blocks: 80, MaxAdapters: 1, Model: Model{A: 1}})
	for id, adapter := range []uint32{1, 2, 1, 0} {
		mustSubmit(t, e, Request{ID: uint64(id), Prompt: 3, Output: 2, Adapter: adapter})
	}
	const ms = time.Millisecond
	want := []step{
		{Duration: ms, Prefill: 9, First: []uint64{0, 2, 3}}, // 1 is skipped
		{Duration: ms, Decoding: 3, Finished: []uint64{0, 2, 3}},
		{Duration: ms, Prefill: 3, First: []uint64{1}},
	}
	if diff := cmp.Diff(want, take(e, 3)); diff != "" {
		t.Error(diff)
	}
}

func TestRefusals(t *testing.T) {
	e := mustNew(t, Config{BlockSize: 4, Blocks: 8})
	for _, c := range []struct {
		req  Request
		want error
	}{
		{Request{Prompt: 0, Output: 1}, ErrRequest},
		{Request{Prompt: 1, Output: 0}, ErrRequest},
		{Request{Prompt: 8, Output: 1, Blocks: names(1, 1)}, ErrRequest},
		{Request{Prompt: 1, Output: 2, Tokens: []uint32{1}}, ErrRequest},
		{Request{Prompt: 31, Output: 2, Blocks: names(1, 8)}, ErrTooLong},
		{Request{Prompt: 31, Output: 1, Blocks: names(1, 8)}, nil},
	} {
		if err := e.Submit(c.req); !errors.Is(err, c.want) {
			t.Errorf("Submit(%+v) = %v, want %v", c.req, err, c.want)
		}
	}
	if _, err := New(Config{}); !errors.Is(err, ErrConfig) {
		t.Errorf("New without blocks: %v", err)
	}
}
