package core

// beat is a heartbeat: life, round trip, and what there is to be had.
type beat struct {
	Seq, Sent  uint64 // Sent is in microseconds of the sender's clock
	Echo, Hold uint64 // Sent of the last beat heard, and for how long it was held
	Flags      uint64
	App        []byte
	States     []stateInfo
}

// Flags of a beat.
const (
	flagLeaving    = 1 << iota // hands over its sources and will be gone
	flagSettled                // has settled
	flagDegraded               // went on without settling
	flagWantDigest             // misses a full digest of the receiver
)

// stateInfo names a state of the sender.
type stateInfo struct {
	Kind    byte
	Name    []byte
	Version uint64
	Ver     uint64 // gauges: version of the content
}

// Kinds of state on the wire.
const (
	stateGauge = 1
	stateFeed  = 2
	stateLog   = 3
)

func (m *beat) append(b []byte) []byte {
	for _, v := range [...]uint64{m.Seq, m.Sent, m.Echo, m.Hold, m.Flags} {
		b = putUint(b, v)
	}
	b = putBytes(b, m.App)
	b = putUint(b, uint64(len(m.States)))
	for _, s := range m.States {
		var at int
		b, at = beginRecord(b)
		b = append(b, s.Kind)
		b = putBytes(b, s.Name)
		b = putUint(b, s.Version)
		b = putUint(b, s.Ver)
		b = endRecord(b, at)
	}
	return b
}

func (m *beat) decode(r reader) error {
	*m = beat{States: m.States[:0]}
	m.Seq, m.Sent, m.Echo, m.Hold, m.Flags = r.uint(), r.uint(), r.uint(), r.uint(), r.uint()
	m.App = r.bytes()
	for n := r.count(); n > 0 && !r.bad; n-- {
		e := r.record()
		s := stateInfo{Kind: byte(e.uint()), Name: e.name(), Version: e.uint(), Ver: e.uint()}
		r.bad = r.bad || e.bad
		m.States = append(m.States, s)
	}
	return r.err()
}

func (r *reader) err() error {
	if r.bad {
		return errMalformed
	}
	return nil
}

// gaugeMsg carries entries of a gauge: those changed between From and Ver, or
// with Full all that there are.
type gaugeMsg struct {
	Name      []byte
	Version   uint64
	Full      bool
	From, Ver uint64
	Entries   []gaugeEntry
}

type gaugeEntry struct {
	Key     []byte
	Value   []byte
	Removed bool
}

func (m *gaugeMsg) append(b []byte) []byte {
	b = putBytes(b, m.Name)
	b = putUint(b, m.Version)
	b = putUint(b, flag(m.Full))
	b = putUint(b, m.From)
	b = putUint(b, m.Ver)
	b = putUint(b, uint64(len(m.Entries)))
	for _, e := range m.Entries {
		b = putBytes(b, e.Key)
		b = putUint(b, flag(e.Removed))
		b = putBytes(b, e.Value)
	}
	return b
}

func (m *gaugeMsg) decode(r reader) error {
	*m = gaugeMsg{Entries: m.Entries[:0]}
	m.Name, m.Version, m.Full, m.From, m.Ver = r.name(), r.uint(), r.uint() != 0, r.uint(), r.uint()
	for n := r.count(); n > 0 && !r.bad; n-- {
		e := gaugeEntry{Key: r.bytes(), Removed: r.uint() != 0, Value: r.bytes()}
		if len(e.Key) > MaxName {
			r.bad = true
		}
		m.Entries = append(m.Entries, e)
	}
	return r.err()
}

func flag(v bool) uint64 {
	if v {
		return 1
	}
	return 0
}

// feedMsg carries the payloads Seq, Seq+1, … of a feed.
type feedMsg struct {
	Name     []byte
	Version  uint64
	Seq      uint64
	Payloads [][]byte
}

func (m *feedMsg) append(b []byte) []byte {
	b = putBytes(b, m.Name)
	b = putUint(b, m.Version)
	b = putUint(b, m.Seq)
	b = putUint(b, uint64(len(m.Payloads)))
	for _, p := range m.Payloads {
		b = putBytes(b, p)
	}
	return b
}

func (m *feedMsg) decode(r reader) error {
	*m = feedMsg{Payloads: m.Payloads[:0]}
	m.Name, m.Version, m.Seq = r.name(), r.uint(), r.uint()
	for n := r.count(); n > 0 && !r.bad; n-- {
		m.Payloads = append(m.Payloads, r.bytes())
	}
	return r.err()
}
