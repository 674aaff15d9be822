package budget

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

// TestTurn: large inputs wait for each other, small ones for nobody, and who waits goes away
// with its client.
func TestTurn(t *testing.T) {
	b := New(1 << 30)
	var ends []func()
	for range cap(b.turns) {
		end, ok := b.AcquireCPU(t.Context(), heavy)
		if !ok {
			t.Fatal("no turn though nobody has one")
		}
		ends = append(ends, end)
	}
	if end, ok := b.AcquireCPU(t.Context(), heavy-1); !ok {
		t.Error("a small input waits")
	} else {
		end()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the client went away"))
	if _, ok := b.AcquireCPU(ctx, heavy); ok {
		t.Error("more turns than there are")
	}
	next := make(chan func())
	go func() {
		end, _ := b.AcquireCPU(t.Context(), heavy)
		next <- end
	}()
	ends[0]()
	(<-next)()
	for _, end := range ends[1:] {
		end()
	}
	if len(b.turns) != 0 {
		t.Errorf("%d turns do not end", len(b.turns))
	}
	var none *Budget
	if end, ok := none.AcquireCPU(ctx, heavy); !ok {
		t.Error("no budget waits")
	} else {
		end()
	}
}

// TestLargeBodiesUseHalfOfTheProcessors checks that at most half of the processors, but at least
// one, read large inputs at once.
func TestLargeBodiesUseHalfOfTheProcessors(t *testing.T) {
	for processors, want := range map[int]int{1: 1, 2: 1, 3: 1, 8: 4} {
		before := runtime.GOMAXPROCS(processors)
		got := cap(newTurns())
		runtime.GOMAXPROCS(before)
		if got != want {
			t.Errorf("%d processors: %d readers of large inputs, want %d", processors, got, want)
		}
	}
}
