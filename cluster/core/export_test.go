package core

// ToOlder makes a frame what a member of Minor 0 would make of it: fields that
// came with Minor 1 are not there, and kinds that it does not know are
// swallowed (nil). Feeds stand for a kind that came later.
func ToOlder(frame []byte) []byte {
	r := reader{b: frame[headerLen:]}
	out := append([]byte(nil), frame[:headerLen]...)
	out[1] = 0
	switch frame[2] {
	case kindFeed:
		return nil
	case kindDigest:
		var m digestMsg
		if m.decode(r) != nil {
			return nil
		}
		out = putBytes(out, m.Name)
		out = putUint(out, m.Version)
		out = putUint(out, flag(m.Full))
		out = putUint(out, uint64(len(m.Claims)))
		for i := range m.Claims {
			c := m.Claims[i]
			c.Pos.Lost = 0
			at := len(out)
			out = c.append(out)
			out = endRecord(out[:len(out)-1], at) // without Lost, one byte
		}
		return out
	case kindBeat:
		var m beat
		if m.decode(r) != nil {
			return nil
		}
		m.States = dropFeeds(m.States)
		return m.append(out)
	}
	return append(out, frame[headerLen:]...)
}

func dropFeeds(states []stateInfo) []stateInfo {
	var out []stateInfo
	for _, s := range states {
		if s.Kind != stateFeed {
			out = append(out, s)
		}
	}
	return out
}

// ToNewer makes a frame what a member of a later Minor might: fields are added
// at the ends of messages and records, and there are states nobody knows.
func ToNewer(frame []byte) []byte {
	r := reader{b: frame[headerLen:]}
	out := append([]byte(nil), frame[:headerLen]...)
	out[1] = Minor + 1
	var m beat
	if frame[2] == kindBeat && m.decode(r) == nil {
		m.States = append(m.States, stateInfo{stateGauge, []byte("tomorrow"), 3, 4}, stateInfo{9, []byte("unheard-of"), 1, 1})
		return append(m.append(out), 1, 2, 3)
	}
	return append(append(out, frame[headerLen:]...), 1, 2, 3)
}

// Strange returns a frame of a kind that does not exist yet.
func Strange(frame []byte) []byte {
	out := append([]byte(nil), frame[:headerLen]...)
	out[1], out[2] = Minor+1, 77
	return append(out, "what is this"...)
}
