package trace

import (
	"reflect"
	"testing"
	"time"
)

// TestAgentRuns checks the structure of generated runs: requests are sorted, wait only for requests of
// their own run, and continue the prompts of their sessions. A round's lead turn waits for all
// sub-agents.
func TestAgentRuns(t *testing.T) {
	for _, w := range AgentRuns {
		o := GenerateOptions{Rate: 5, Length: 10 * time.Minute, Seed: 3}
		tr := w.Generate(o)
		if !reflect.DeepEqual(tr, w.Generate(o)) {
			t.Errorf("%s: two traces of one seed differ", w.Name)
		}
		last, joins, roots := map[int32]*Request{}, 0, map[int32]int{}
		for i := range tr.Requests {
			r := &tr.Requests[i]
			if i > 0 && r.At < tr.Requests[i-1].At || r.Program < 1 || int(r.Program) > tr.Programs {
				t.Fatalf("%s: request %d of program %d arrives at %v", w.Name, i, r.Program, r.At)
			}
			if len(r.After) == 0 {
				roots[r.Program]++
			}
			if len(r.After) > 1 {
				joins++
			}
			for _, n := range r.After {
				if before := &tr.Requests[n]; int(n) >= i || before.Program != r.Program {
					t.Fatalf("%s: request %d waits for request %d", w.Name, i, n)
				}
			}
			if before := last[r.Session]; before != nil {
				full := before.Full(tr.BlockSize)
				if r.Input < before.Input+before.Output || !reflect.DeepEqual(before.Blocks[:full], r.Blocks[:full]) {
					t.Fatalf("%s: request %d does not continue its session", w.Name, i)
				}
			}
			last[r.Session] = r
		}
		for p, n := range roots {
			if n != 1 {
				t.Errorf("%s: program %d has %d first requests, want 1", w.Name, p, n)
			}
		}
		if joins == 0 || len(roots) != tr.Programs {
			t.Errorf("%s: %d joins, %d of %d programs begin", w.Name, joins, len(roots), tr.Programs)
		}
	}
}
