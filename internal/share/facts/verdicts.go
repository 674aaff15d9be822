package facts

import (
	"encoding/binary"

	"github.com/grapevine-epp/grapevine/internal/varint"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// blameSink receives verdicts on prompts.
type blameSink struct{ *Hints }

// Flags of a verdict.
const (
	verdictAnswered = 1
	verdictDied     = 2
)

// VerdictReached sends the outcome of a request with a failed prompt. Failures at other clusters'
// endpoints are not sent, because each replica numbers those differently.
func (h *Hints) VerdictReached(v health.Verdict) {
	address, flags := "", uint64(0)
	if v.Answered {
		flags = verdictAnswered
	} else if address = h.address(v.Endpoint); address == "" {
		return
	}
	if v.Died {
		flags |= verdictDied
	}
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 48), v.Prompt)
	b = binary.AppendVarint(b, int64(max(h.o.Now().Sub(v.At), 0)))
	b = binary.AppendUvarint(b, flags)
	h.add(h.verdicts, appendText(b, address))
}

// address returns the address of an endpoint in the pool, or "" if it has left.
func (h *Hints) address(id int) string {
	for _, ep := range h.o.Pool.Snapshot().Endpoints {
		if int(ep.ID) == id {
			return ep.Address
		}
	}
	return ""
}

// Deliver implements cluster.FeedSink.
func (s blameSink) Deliver(_ string, _ uint64, payload []byte) error {
	c := varint.Reader{B: payload}
	v := health.Verdict{Prompt: c.Fixed64(), At: s.o.Now().Add(-readAge(&c))}
	flags := c.Uint()
	v.Answered, v.Died = flags&verdictAnswered != 0, flags&verdictDied != 0
	address := readText(&c, maxAddress)
	if c.Err != nil {
		return errWire
	}
	if !v.Answered {
		ep := s.o.Pool.Snapshot().Lookup(address)
		if ep == nil {
			return nil
		}
		v.Endpoint = int(ep.ID)
	}
	s.o.Blame.Merge(v)
	return nil
}
