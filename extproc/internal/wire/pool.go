package wire

import (
	"math/bits"
	"sync"
)

// Pool tiers: powers of two from 2 KiB to 4 MiB. Larger buffers are not pooled.
const (
	minTier = 11
	maxTier = 22
)

// Pool provides byte slices without clearing them. gRPC's own pool clears up to a megabyte, which
// took a third of the CPU time of a 40 KiB request.
type Pool struct {
	tiers [maxTier - minTier + 1]sync.Pool
}

// Buffers is the memory of all streams.
var Buffers Pool

// Get returns a slice of n bytes with arbitrary content.
func (p *Pool) Get(n int) *[]byte {
	t := tier(n)
	if t >= len(p.tiers) {
		b := make([]byte, n)
		return &b
	}
	if b, ok := p.tiers[t].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, 1<<(t+minTier))
	return &b
}

// Put returns a slice to the pool. Slices that are not from Get are dropped.
func (p *Pool) Put(b *[]byte) {
	t := tier(cap(*b))
	if t < len(p.tiers) && cap(*b) == 1<<(t+minTier) {
		p.tiers[t].Put(b)
	}
}

// tier returns the index of the smallest tier for n bytes.
func tier(n int) int {
	return max(bits.Len(uint(max(n, 1)-1)), minTier) - minTier
}
