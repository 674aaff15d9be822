package share

import (
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/wire"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
)

// encode returns the shared form of a batch read here, for members with that log version, and its
// incarnation. If the batch is the next one, known entries are encoded in short form.
func (s *source) encode(u *events.Update, version uint64) (payload []byte, inc uint64) {
	d := u.Delta
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < indexVersion || !fits(d) {
		return appendPayload(make([]byte, 0, 64+20*len(d.Blocks)+9*len(d.Hashes)), u.After.Sum, d), s.inc
	}
	var known *wire.Tails
	if s.mode == plan.Shared && s.follows(u.First) {
		known = &s.tails
	}
	b := appendPayloadHead(make([]byte, 0, 32+20*len(d.Blocks)+5*len(d.Hashes)), payloadShort, u.After.Sum)
	return wire.AppendShort(b, s.x, s.src, known, d), s.inc
}

// follows reports whether batch first directly follows the content. The caller holds mu.
func (s *source) follows(first uint64) bool { return s.head.have && s.head.last+1 == first }

// decode decodes a payload. It validates the complete payload before it uses any part. The caller
// holds mu. The result is valid until the next decode with the same scratch. unsure means that the
// payload depends on entries that the content lacks.
func (s *source) decode(b []byte, scratch *block.Delta) (parts []block.Delta, unsure bool, err error) {
	if len(b) < payloadHead || b[0]&^payloadMissed != payloadShort {
		_, parts, err = readPayload(b)
		return parts, false, err
	}
	n, err := wire.DecodeShort(b[payloadHead:], s.x, s.src, &s.tails, scratch)
	if err != nil {
		return nil, false, err
	}
	return []block.Delta{*scratch}, n > 0, nil
}
