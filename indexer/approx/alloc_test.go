//go:build !race

package approx

import (
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Without the race detector, under which sync.Pool drops items at random.
func TestAllocations(t *testing.T) {
	a := New(Options{ChunkBytes: 64, CapacityBytes: 64 * 300})
	prompts := make([][]block.Key, 16)
	for i := range prompts {
		prompts[i] = chainOf(a, string(rune('a'+i)), 100)
	}
	candidates, notBefore, runs := []block.EndpointID{0, 1, 2, 3}, make([]int64, 4), make([]block.Run, 4)
	buf, dst := make([]byte, 6400), make([]block.Key, 0, 100)
	i := 0
	step := func() {
		keys := prompts[i%len(prompts)]
		a.Keys(block.Query{Root: 1, Bytes: buf}, dst)
		a.Match(keys, candidates, notBefore, runs)
		a.Record(block.EndpointID(i%5%4), keys, int64(i)*second)
		if i%7 == 0 {
			a.Truncate(block.EndpointID(i%4), keys, 2000)
		}
		i++
	}
	for range 2000 { // until tables and lists have grown
		step()
	}
	if n := testing.AllocsPerRun(1000, step); n != 0 {
		t.Errorf("%v allocations for a match and a record at capacity", n)
	}
}
