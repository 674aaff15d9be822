package prefix

import (
	"cmp"

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
	m.o.Approx.SetCapacity(ep.ID, capacityBytes(blocks, blockTokens))
	if !m.sized(ep) {
		m.sizes.Store(ep.ID, true)
	}
}

func capacityBytes(blocks, tokens int) int {
	blocks, tokens = min(blocks, maxApproxBytes), min(tokens, maxApproxBytes) // no overflow
	return min(blocks*tokens*approx.DefaultBytesPerToken, maxApproxBytes)
}
