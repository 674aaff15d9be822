package engine

import "testing"

// TestHold checks that blocks held for another engine stay until they are released.
func TestHold(t *testing.T) {
	e, err := New(Config{Blocks: 20})
	if err != nil {
		t.Fatal(err)
	}
	names := make([]Hash, 10)
	for i := range names {
		names[i] = Hash(i + 1)
	}
	if err := e.Submit(Request{ID: 1, Prompt: 150, Output: 1, Blocks: names[:9], Hold: true}); err != nil {
		t.Fatal(err)
	}
	for !e.Idle() {
		e.Step()
	}
	if got := e.Stats(); got.UsedBlocks != 10 || got.Finished != 1 || len(e.HeldBlocks(1)) != 10 {
		t.Fatalf("after the request: %+v, %d kept", got, len(e.HeldBlocks(1)))
	}
	if !e.Release(1) || e.Release(1) || e.Stats().UsedBlocks != 0 {
		t.Errorf("after the release: %+v", e.Stats())
	}
	if got := e.Cached(names); got != 9 {
		t.Errorf("%d blocks are cached, want 9", got)
	}
}

// TestRemote checks that only the last block of a prompt with remote blocks is computed, and that
// its blocks are published.
func TestRemote(t *testing.T) {
	e, err := New(Config{Blocks: 20, Events: true})
	if err != nil {
		t.Fatal(err)
	}
	names := []Hash{1, 2, 3, 4, 5, 6, 7, 8, 9}
	if err := e.Submit(Request{ID: 1, Prompt: 150, Output: 3, Blocks: names, Remote: true}); err != nil {
		t.Fatal(err)
	}
	r := e.Step()
	stored := 0
	for _, ev := range r.Events {
		stored += len(ev.Hashes)
	}
	if r.Prefill != 6 || stored != 9 || len(r.First) != 1 || r.First[0].Cached != 144 {
		t.Errorf("%d tokens computed, %d blocks announced, %+v", r.Prefill, stored, r.First)
	}
}

// TestFetched checks that fetched leading blocks are not computed, later ones are, and that a
// preempted request computes every block.
func TestFetched(t *testing.T) {
	e, err := New(Config{Blocks: 20})
	if err != nil {
		t.Fatal(err)
	}
	names := []Hash{1, 2, 3, 4, 5, 6, 7, 8, 9}
	if err := e.Submit(Request{ID: 1, Prompt: 150, Output: 1, Blocks: names, Fetched: 5}); err != nil {
		t.Fatal(err)
	}
	if r := e.Step(); r.Prefill != 70 || len(r.First) != 1 || r.First[0].Cached != 80 {
		t.Errorf("%d tokens computed, %+v", r.Prefill, r.First)
	}
	// Blocks that are cached locally are not fetched.
	if err := e.Submit(Request{ID: 2, Prompt: 150, Output: 1, Blocks: names, Fetched: 5}); err != nil {
		t.Fatal(err)
	}
	if r := e.Step(); r.Prefill != 6 || r.First[0].Cached != 144 {
		t.Errorf("%d tokens computed of a prompt that is held, %+v", r.Prefill, r.First)
	}
}
