package engine

import (
	"slices"
	"testing"
)

// ended returns the requests of an engine in the order in which they end.
func ended(e *Engine) (ids []uint64) {
	for !e.Idle() {
		for _, m := range e.Step().Finished {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// TestByPriority checks that waiting requests are admitted by priority, then by arrival, and that
// running ones continue.
func TestByPriority(t *testing.T) {
	for _, c := range []struct {
		byPriority bool
		want       []uint64
	}{{false, []uint64{1, 2, 3, 4, 5}}, {true, []uint64{1, 4, 3, 5, 2}}} {
		e := mustNew(t, Config{BlockSize: 10, Blocks: 100, MaxSeqs: 1, Model: unit, ByPriority: c.byPriority})
		mustSubmit(t, e, Request{ID: 1, Prompt: 10, Output: 2, Blocks: names(0, 1), Priority: 100})
		e.Step()
		for i, priority := range []int64{9, 3, -1, 3} {
			mustSubmit(t, e, Request{ID: uint64(i) + 2, Prompt: 10, Output: 2, Blocks: names(10*i+10, 1), Priority: priority})
		}
		if got := ended(e); !slices.Equal(got, c.want) {
			t.Errorf("by priority %v: ended in the order %v, want %v", c.byPriority, got, c.want)
		}
	}
}

// TestPreemptionByPriority checks that the request of lowest priority is preempted when memory runs
// out, and resumes in its turn.
func TestPreemptionByPriority(t *testing.T) {
	for _, c := range []struct {
		byPriority bool
		want       uint64
	}{{false, 3}, {true, 2}} {
		e := mustNew(t, Config{BlockSize: 10, Blocks: 7, Model: unit, ByPriority: c.byPriority})
		for i, priority := range []int64{1, 5, 3} {
			mustSubmit(t, e, Request{ID: uint64(i) + 1, Prompt: 20, Output: 21, Blocks: names(10*i+10, 2), Priority: priority})
		}
		var preempted []uint64
		for !e.Idle() {
			for _, m := range e.Step().Finished {
				if m.Preemptions > 0 {
					preempted = append(preempted, m.ID)
				}
			}
		}
		if !slices.Contains(preempted, c.want) || slices.Contains(preempted, 1) {
			t.Errorf("by priority %v: preempted %v, want %d, and 1 never", c.byPriority, preempted, c.want)
		}
	}
}
