package retry

import "sync"

// Share of the requests may have a second try in the long run, Burst of them at once.
const (
	Share = .2
	Burst = 20
)

// Budget bounds second prefill legs, so that prefill engines that are down or overloaded do
// not get twice the load. A request without one is not lost: its decode engine computes the
// prompt. Safe for concurrent use.
type Budget struct {
	mu   sync.Mutex
	left float64
}

// New returns a budget that is full.
func New() *Budget { return &Budget{left: Burst} }

// Asked notes a request that is split.
func (b *Budget) Asked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+Share, Burst)
}

// Take reports whether there may be one more second leg.
func (b *Budget) Take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}
