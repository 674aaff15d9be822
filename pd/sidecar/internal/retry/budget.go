package retry

import "sync"

// Share is the long-run share of requests that may be retried, Burst the maximum at once.
const (
	Share = .2
	Burst = 20
)

// Budget limits second prefill legs, so that prefill engines that are down or overloaded do not get
// twice the load. A request without a retry is not lost: its decode engine computes the prompt. It
// is safe for concurrent use.
type Budget struct {
	mu   sync.Mutex
	left float64
}

// New returns a full budget.
func New() *Budget { return &Budget{left: Burst} }

// Asked counts a request that is split.
func (b *Budget) Asked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+Share, Burst)
}

// Take reports whether another second leg is allowed, and counts it.
func (b *Budget) Take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}
