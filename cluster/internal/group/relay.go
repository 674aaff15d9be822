package group

import "encoding/binary"

// Relayed names the original writer of a KindRelayed frame. The fields of KindDelta follow.
type Relayed struct {
	ID   []byte // of the writer
	Boot uint64 // of the writer's process
}

// Append encodes m.
func (m *Relayed) Append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(putBytes(b, m.ID), m.Boot)
}

// Decode reads m and leaves r at the fields that follow.
func (m *Relayed) Decode(r *Reader) error {
	m.ID, m.Boot = r.name(), r.Fixed64()
	return r.err()
}

// KindOf returns a copy of frame with another kind. frame may be shared.
func KindOf(frame []byte, kind byte) []byte {
	out := append(make([]byte, 0, len(frame)), frame...)
	out[2] = kind
	return out
}
