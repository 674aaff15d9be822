package facts

import (
	"encoding/binary"

	"github.com/grapevine-epp/grapevine/internal/varint"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// splitSink receives outcomes of pairs of prefill and decode endpoints.
type splitSink struct{ *Hints }

// SplitEnded sends the outcome of a split request at a pair: whether the prefill endpoint computed the
// prompt.
func (h *Hints) SplitEnded(from, to *endpoint.Endpoint, fault endpoint.PairFault) {
	b := binary.AppendUvarint(make([]byte, 0, 64), uint64(fault))
	h.add(h.splits, appendText(appendText(b, from.Address), to.Address))
}

// Deliver implements cluster.FeedSink.
func (s splitSink) Deliver(_ string, _ uint64, payload []byte) error {
	c := varint.Reader{B: payload}
	fault := c.Uint()
	from, to := readText(&c, maxAddress), readText(&c, maxAddress)
	if c.Err != nil {
		return errWire
	}
	if fault >= uint64(endpoint.NumPairFaults) { // of a later release
		return nil
	}
	pool := s.o.Pool.Snapshot()
	if a, b := pool.Lookup(from), pool.Lookup(to); a != nil && b != nil {
		s.o.Pool.Splits().Merge(a, b, endpoint.PairFault(fault))
	}
	return nil
}
