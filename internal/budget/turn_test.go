package budget

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

// TestTurn: large inputs wait for each other and small ones never wait. A waiting input gives up
// when its context ends.
func TestTurn(t *testing.T) {
	b := New(1 << 30)
	var ends []func()
	for range cap(b.turns) {
		end, ok := b.AcquireCPU(t.Context(), heavy)
		if !ok {
			t.Fatal("AcquireCPU() = false without contention")
		}
		ends = append(ends, end)
	}
	if end, ok := b.AcquireCPU(t.Context(), heavy-1); !ok {
		t.Error("small input had to wait")
	} else {
		end()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the client went away"))
	if _, ok := b.AcquireCPU(ctx, heavy); ok {
		t.Error("more turns than the limit")
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
		t.Errorf("%d turns were not released", len(b.turns))
	}
	var none *Budget
	if end, ok := none.AcquireCPU(ctx, heavy); !ok {
		t.Error("nil budget had to wait")
	} else {
		end()
	}
}

// TestLargeBodiesUseHalfOfTheProcessors: at most half of the CPUs, but at least one, read large
// inputs at once.
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

// TestTurnsOfProcessors checks that half of the processors read large inputs, and at least one.
func TestTurnsOfProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for processors, want := range map[int]int{1: 1, 2: 1, 6: 3} {
		runtime.GOMAXPROCS(processors)
		b := New(1 << 30)
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // what has to wait is refused
		got := 0
		for range 2 * processors {
			select {
			case b.turns <- struct{}{}:
				got++
			default:
			}
		}
		if _, ok := b.AcquireCPU(ctx, heavy); ok || got != want {
			t.Errorf("%d processors: %d large inputs are read at a time, want %d; one more: %t", processors, got, want, ok)
		}
	}
}
