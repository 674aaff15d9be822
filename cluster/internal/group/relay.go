package group

import "encoding/binary"

// Relayed is whose deltas a frame of KindRelayed has: the fields of KindDelta follow it.
type Relayed struct {
	ID   []byte // of the member that wrote them
	Boot uint64 // its process
}

// Append encodes m.
func (m *Relayed) Append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(putBytes(b, m.ID), m.Boot)
}

// Decode reads m, and leaves r at the fields that follow.
func (m *Relayed) Decode(r *Reader) error {
	m.ID, m.Boot = r.name(), r.Fixed64()
	return r.err()
}

// KindOf returns frame, which may be shared, as a frame of another kind.
func KindOf(frame []byte, kind byte) []byte {
	out := append(make([]byte, 0, len(frame)), frame...)
	out[2] = kind
	return out
}
