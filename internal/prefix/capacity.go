package prefix

import (
	"cmp"
	"sync"

	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const (
	// usualBlockTokens is the default block size if the configuration counts blocks without giving
	// their size.
	usualBlockTokens = 16
	// maxApproxBytes bounds the records of one endpoint's cache.
	maxApproxBytes = 64 << 20
)

// Sizing is the capacity of the approximate index for endpoints of unknown cache size, or for all.
type Sizing struct {
	Blocks      int  // 0: the index's own default
	BlockTokens int  // 0: 16
	Fixed       bool // ignore the endpoints' own sizes
}

// SetSizing changes the sizing and applies it to eps. The next Sized corrects endpoints whose own
// sizes count.
func (m *Matcher) SetSizing(s Sizing, eps []*endpoint.Endpoint) {
	if old := m.sizing.Swap(&s); *old != s {
		m.Joined(eps)
	}
}

// Joined sets the capacity of new endpoints in the approximate index until their own sizes are
// known.
func (m *Matcher) Joined(eps []*endpoint.Endpoint) {
	s := m.sizing.Load()
	if s.Blocks <= 0 {
		return
	}
	for _, ep := range eps {
		m.o.Approx.SetCapacity(ep.ID, capacityBytes(s.Blocks, cmp.Or(s.BlockTokens, usualBlockTokens)))
	}
}

// Sized sets an endpoint's capacity by the engine's number of blocks and tokens per block.
func (m *Matcher) Sized(ep *endpoint.Endpoint, blocks, blockTokens int) {
	if s := m.sizing.Load(); s.Fixed && s.Blocks > 0 || blocks <= 0 || blockTokens <= 0 {
		return
	}
	v, ok := m.sizes.Load(ep.ID)
	if !ok {
		v, _ = m.sizes.LoadOrStore(ep.ID, &cacheSize{factor: 1})
	}
	m.o.Approx.SetCapacity(ep.ID, v.(*cacheSize).set(capacityBytes(blocks, blockTokens)))
}

// Engines report GPU memory only. With offloading to host memory or disk, answers report more
// cached tokens than that holds.
const (
	offloadEnough = 8 // consecutive answers of one kind before the size changes
	offloadMost   = 8 // maximum multiple of the GPU cache
)

// cacheSize is the capacity recorded for an endpoint: its GPU cache times a factor learned from
// answers.
type cacheSize struct {
	mu     sync.Mutex
	base   int // bytes
	factor int
	row    int // consecutive answers that reported more (> 0) or less (< 0) than predicted
}

// set sets the GPU cache size and returns the capacity in bytes.
func (c *cacheSize) set(base int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = base
	return c.bytes()
}

func (c *cacheSize) bytes() int { return min(c.base*c.factor, maxApproxBytes) }

// compare records the excess of reported over predicted tokens. It returns the new capacity in
// bytes if it changes.
func (c *cacheSize) compare(more, slack int) (bytes int, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.factor
	switch {
	case more > slack:
		c.row = max(c.row, 0) + 1
	case more < -slack:
		c.row = min(c.row, 0) - 1
	default:
		c.row = 0
	}
	if c.row >= offloadEnough {
		c.factor, c.row = min(2*c.factor, offloadMost), 0
	} else if c.row <= -offloadEnough {
		c.factor, c.row = max(c.factor/2, 1), 0
	}
	return c.bytes(), c.factor != was
}

// resize adjusts an endpoint's capacity by an answer's excess of reported over predicted tokens.
func (m *Matcher) resize(ep *endpoint.Endpoint, more, slack int) {
	v, ok := m.sizes.Load(ep.ID)
	if !ok {
		return
	}
	if bytes, changed := v.(*cacheSize).compare(more, slack); changed {
		m.o.Approx.SetCapacity(ep.ID, bytes)
	}
}

func capacityBytes(blocks, tokens int) int {
	blocks, tokens = min(blocks, maxApproxBytes), min(tokens, maxApproxBytes) // no overflow
	return min(blocks*tokens*approx.DefaultBytesPerToken, maxApproxBytes)
}
