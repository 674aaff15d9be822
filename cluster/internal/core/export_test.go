package core

import (
	"encoding/binary"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// ToOlder rewrites a frame for a member of Minor 0. It removes the fields that Minor 1 added and
// returns nil for unknown kinds. Feeds stand in for a kind that was added later.
func ToOlder(frame []byte) []byte {
	out := append([]byte(nil), frame[:group.HeaderLen]...)
	out[1] = 0
	switch frame[2] {
	case group.KindFeed:
		return nil
	case group.KindDigest:
		var m group.Digests
		if m.Decode(group.Body(frame)) != nil {
			return nil
		}
		return appendOldDigests(out, &m)
	case group.KindBeat:
		var m group.Beat
		if m.Decode(group.Body(frame)) != nil {
			return nil
		}
		var states []group.StateInfo
		for _, s := range m.States {
			if s.Kind != group.StateFeed {
				states = append(states, s)
			}
		}
		m.States = states
		return m.Append(out)
	}
	return append(out, plainBusy(frame)...)
}

// plainBusy returns the body of a frame. It removes the retry time from a page reply, since older
// members neither send nor read it.
func plainBusy(frame []byte) []byte {
	var m group.PageReply
	if frame[2] != group.KindPageReply || m.Decode(group.Body(frame)) != nil || m.Status != group.StatusBusy {
		return frame[group.HeaderLen:]
	}
	m.Snap = group.Position{}
	return m.Append(nil)
}

// ToNewer rewrites a frame as a later Minor might: it appends fields to messages and adds unknown
// states.
func ToNewer(frame []byte) []byte {
	out := append([]byte(nil), frame[:group.HeaderLen]...)
	out[1] = group.Minor + 1
	var m group.Beat
	if frame[2] == group.KindBeat && m.Decode(group.Body(frame)) == nil {
		m.States = append(m.States,
			group.StateInfo{Kind: group.StateGauge, Name: []byte("tomorrow"), Version: 3, Ver: 4},
			group.StateInfo{Kind: 9, Name: []byte("unheard-of"), Version: 1, Ver: 1})
		return append(m.Append(out), 1, 2, 3)
	}
	return append(append(out, frame[group.HeaderLen:]...), 1, 2, 3)
}

// Nicked reports whether a frame names a source by its nick.
func Nicked(frame []byte) (is bool) {
	var m group.Deltas
	if frame[2] == group.KindDelta && m.Decode(group.Body(frame)) == nil {
		m.Each(func(_ int, g *group.DeltaRun) { is = is || g.Inc == 0 })
	}
	return is
}

// Strange returns a frame of an unknown kind.
func Strange(frame []byte) []byte {
	out := append([]byte(nil), frame[:group.HeaderLen]...)
	out[1], out[2] = group.Minor+1, 77
	return append(out, "what is this"...)
}

// appendOldDigests encodes m without the positions' losses.
func appendOldDigests(b []byte, m *group.Digests) []byte {
	b = binary.AppendUvarint(b, uint64(len(m.Name)))
	b = append(b, m.Name...)
	b = binary.AppendUvarint(b, m.Version)
	full := uint64(0)
	if m.Full {
		full = 1
	}
	b = binary.AppendUvarint(b, full)
	b = binary.AppendUvarint(b, uint64(len(m.Claims)))
	for _, c := range m.Claims {
		c.Pos.Lost = 0
		record := c.Append(nil)
		record = record[:len(record)-1] // without the zero
		n := len(record) - 2
		record[0], record[1] = byte(n&0x7f)|0x80, byte(n>>7)
		b = append(b, record...)
	}
	return b
}
