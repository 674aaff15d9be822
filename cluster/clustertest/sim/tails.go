package sim

import (
	"encoding/binary"

	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// A payload is a batch's value (8 bytes). Since version 2 of the log it may depend on an earlier
// batch, as index deltas depend on known entries. It is then: the distance to the earlier batch (1
// byte), the batch's name (8), and the value mixed with the earlier batch's name (8).
const (
	shortSince = 2
	plainSize  = 8
	shortSize  = 17
	tailReach  = 8
)

// payloadNeeds is the log's LogOptions.Needs.
func payloadNeeds(p []byte) uint64 {
	if len(p) == shortSize {
		return shortSince
	}
	return 1
}

// nameOf is the name of the batch with a value.
func nameOf(v uint64) uint64 { return chain{}.apply(v).hash }

// tails are the names of the latest batches without a gap.
type tails struct {
	names []uint64
	next  uint64 // the next batch
	known bool   // next is
}

// at prepares for batch seq. Names from before a gap are dropped.
func (t *tails) at(seq uint64) {
	if !t.known || t.next != seq {
		t.names = t.names[:0]
	}
}

func (t *tails) note(seq, name uint64) {
	if t.names = append(t.names, name); len(t.names) > tailReach {
		t.names = t.names[1:]
	}
	t.next, t.known = seq+1, true
}

// encode is the payload of batch seq for members of a log version.
func (t *tails) encode(seq, v, version uint64) []byte {
	back := 0
	if t.known && t.next == seq {
		back = int(v % uint64(len(t.names)+1))
	}
	if version < shortSince || back == 0 {
		return payload(v)
	}
	p := binary.LittleEndian.AppendUint64([]byte{byte(back)}, nameOf(v))
	return binary.LittleEndian.AppendUint64(p, v^t.names[len(t.names)-back])
}

// decode returns the value and the name of a batch. If the payload depends on an unknown batch, the
// value is partial.
func (t *tails) decode(p []byte) (v, name uint64, err error) {
	if len(p) == plainSize {
		v = binary.LittleEndian.Uint64(p)
		return v, nameOf(v), nil
	}
	back := int(p[0])
	name, v = binary.LittleEndian.Uint64(p[1:]), binary.LittleEndian.Uint64(p[9:])
	if back > len(t.names) {
		return v, name, logs.ErrUnsure
	}
	return v ^ t.names[len(t.names)-back], name, nil
}

// append appends the tails to a page of a snapshot.
func (t *tails) append(p []byte) []byte {
	if !t.known {
		return p
	}
	p = binary.LittleEndian.AppendUint64(p, t.next)
	for _, v := range t.names {
		p = binary.LittleEndian.AppendUint64(p, v)
	}
	return p
}

// readTails decodes the output of append, if any.
func readTails(p []byte) *tails {
	t := &tails{}
	if len(p) < 8 {
		return t
	}
	t.next, t.known = binary.LittleEndian.Uint64(p), true
	for p = p[8:]; len(p) >= 8; p = p[8:] {
		t.names = append(t.names, binary.LittleEndian.Uint64(p))
	}
	return t
}

// tailsOf returns the tails of a source.
func (s *store) tailsOf(source string) *tails {
	t := s.tails[source]
	if t == nil {
		t = &tails{}
		s.tails[source] = t
	}
	return t
}

// value decodes a delta's payload and updates the tails.
func (s *store) value(d logs.Delta) (uint64, error) {
	if payloadNeeds(d.Payload) > s.version {
		s.m.w.failf("%s, of version %d, was sent a payload that it cannot read", s.m.name, s.version)
	}
	t := s.tailsOf(d.Source)
	t.at(d.First)
	v, name, err := t.decode(d.Payload)
	t.note(d.First, name)
	if len(d.Payload) == shortSize {
		s.m.w.Stats.Short++
	}
	if err != nil {
		s.m.w.Stats.Unsure++
	}
	return v, err
}
