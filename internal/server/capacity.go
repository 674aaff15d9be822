package server

import (
	"cmp"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// usualBlockTokens is the size of a block where the configuration counts in
// blocks and does not say how large they are.
const usualBlockTokens = 16

// presize gives new endpoints the share of the approximate index that the
// configuration asks for, until their own figures are known.
func (s *Server) presize(added []*endpoint.Endpoint) {
	p := s.config.Load().Producer
	if p.BlocksPerEP <= 0 {
		return
	}
	for _, ep := range added {
		s.approx.SetCapacity(ep.ID, capacityBytes(p.BlocksPerEP, cmp.Or(p.BlockTokens, usualBlockTokens)))
	}
}

// resize gives all endpoints the share that a changed configuration asks for.
// Those whose own figures count have it corrected by their next page.
func (s *Server) resize(old, c plugin.Producer) {
	if old.BlocksPerEP != c.BlocksPerEP || old.BlockTokens != c.BlockTokens || old.FixedCapacity != c.FixedCapacity {
		s.presize(s.pool.Snapshot().Endpoints)
	}
}

// onPage sizes the approximate index by the engine's own figures, unless the
// configuration wants a fixed size.
func (s *Server) onPage(ep *endpoint.Endpoint, p scrape.Page) {
	c := s.config.Load().Producer
	if c.FixedCapacity && c.BlocksPerEP > 0 || p.Blocks <= 0 || p.BlockSize <= 0 {
		return
	}
	s.approx.SetCapacity(ep.ID, capacityBytes(p.Blocks, p.BlockSize))
}

func capacityBytes(blocks, tokens int) int {
	blocks, tokens = min(blocks, maxApproxBytes), min(tokens, maxApproxBytes) // no overflow
	return min(blocks*tokens*indexer.DefaultBytesPerToken, maxApproxBytes)
}

// maxApproxBytes bounds what one endpoint's cache may make us remember.
const maxApproxBytes = 64 << 20
