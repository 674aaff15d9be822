package sidecar

import "sync"

// Of the budget of second prefill legs.
const (
	retryShare = .2 // of the requests that are split may have a second leg in the long run
	retryBurst = 20 // at once
)

// budget bounds second prefill legs, so that prefill engines that are down or overloaded do
// not get twice the load. A request without one is not lost: its decode engine computes the
// prompt. Safe for concurrent use.
type budget struct {
	mu   sync.Mutex
	left float64
}

func newBudget() *budget { return &budget{left: retryBurst} }

// asked notes a request that is split.
func (b *budget) asked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+retryShare, retryBurst)
}

// take reports whether there may be one more second leg.
func (b *budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}
