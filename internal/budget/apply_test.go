package budget

import (
	"math"
	"runtime/debug"
	"testing"
)

// TestApply: a budget lowers the garbage collector's limit and never raises it. No budget leaves it as
// it is.
func TestApply(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	limit := func() int64 { return debug.SetMemoryLimit(-1) }

	debug.SetMemoryLimit(math.MaxInt64)
	var none *Budget
	none.Apply()
	if got := limit(); got != math.MaxInt64 {
		t.Errorf("without a budget, the limit is %d, want none", got)
	}
	b := New(1 << 30)
	b.Apply()
	if got := limit(); got != b.heap() {
		t.Errorf("the limit is %d, want %d", got, b.heap())
	}
	debug.SetMemoryLimit(512 << 20)
	b.Apply()
	if got := limit(); got != 512<<20 {
		t.Errorf("the limit is %d, want the lower one of the environment", got)
	}
}
