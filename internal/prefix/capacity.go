package prefix

import (
	"cmp"
	"sync"

	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const (
	// usualBlockTokens is the size of a block where the configuration counts in
	// blocks and does not say how large they are.
	usualBlockTokens = 16
	// maxApproxBytes bounds what one endpoint's cache may make us remember.
	maxApproxBytes = 64 << 20
)

// Sizing says how much the approximate index remembers of an endpoint whose own
// figures are not known, or of every endpoint.
type Sizing struct {
	Blocks      int  // 0: the index's own default
	BlockTokens int  // 0: 16
	Fixed       bool // endpoints' own figures do not count
}

// SetSizing changes the sizing and applies it to eps. Those whose own figures
// count are corrected by the next Sized.
func (m *Matcher) SetSizing(s Sizing, eps []*endpoint.Endpoint) {
	if old := m.sizing.Swap(&s); *old != s {
		m.Joined(eps)
	}
}

// Joined gives new endpoints their share of the approximate index, until their
// own figures are known.
func (m *Matcher) Joined(eps []*endpoint.Endpoint) {
	s := m.sizing.Load()
	if s.Blocks <= 0 {
		return
	}
	for _, ep := range eps {
		m.o.Approx.SetCapacity(ep.ID, capacityBytes(s.Blocks, cmp.Or(s.BlockTokens, usualBlockTokens)))
	}
}

// Sized sizes the approximate index by an engine's own figures: its number of
// blocks, and their tokens.
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

// Engines' figures are of GPU memory alone. Where they offload to host memory or disk, answers
// report more cached tokens than such a cache holds.
const (
	offloadEnough = 8 // answers of one sort in a row before the size changes
	offloadMost   = 8 // how many times the GPU's cache may be remembered
)

// cacheSize is how much is remembered of an endpoint: as much as its GPU cache holds, times a
// factor that answers make.
type cacheSize struct {
	mu     sync.Mutex
	base   int // bytes
	factor int
	row    int // answers in a row that reported more (> 0) or less (< 0) than was predicted
}

// set sets the size of the GPU's cache and returns the bytes to remember.
func (c *cacheSize) set(base int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = base
	return c.bytes()
}

func (c *cacheSize) bytes() int { return min(c.base*c.factor, maxApproxBytes) }

// compare notes by how many tokens an answer reported more than was predicted. It returns the
// bytes to remember where they change.
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

// resize sizes what is remembered of an endpoint by an answer: by how many tokens it reported
// more than was predicted.
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
