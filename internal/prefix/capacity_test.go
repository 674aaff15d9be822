package prefix

import (
	"math"
	"testing"
)

func TestCapacityBytes(t *testing.T) {
	f := func(blocks, tokens, want int) {
		t.Helper()
		if got := capacityBytes(blocks, tokens); got != want {
			t.Errorf("%d blocks of %d tokens: %d bytes, want %d", blocks, tokens, got, want)
		}
	}
	f(31250, 16, 2_000_000)
	f(1<<20, 64, maxApproxBytes)
	f(math.MaxInt, math.MaxInt, maxApproxBytes)
}
