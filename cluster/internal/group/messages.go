package group

// Beat is a heartbeat. It shows that the sender is alive, measures the round trip, and lists the
// versions of the sender's states.
type Beat struct {
	Seq, Sent  uint64 // Sent is in microseconds of the sender's clock
	Echo, Hold uint64 // Sent of the last beat received, and the time since then
	Flags      uint64
	App        []byte
	States     []StateInfo
	Every      uint64 // microseconds until the next beat
	Wall       uint64 // microseconds since 1970 by the sender's wall clock; 0: not stated
}

// Flags of a beat.
const (
	FlagLeaving    = 1 << iota // the member hands over its sources and will stop
	FlagSettled                // has settled
	FlagDegraded               // the member started serving before it settled
	FlagWantDigest             // needs a full digest from the receiver
)

// StateInfo names a state of the sender.
type StateInfo struct {
	Kind    byte
	Name    []byte
	Version uint64
	Ver     uint64 // gauges: version of the content; logs: Numbers.All
	// Logs: Numbers.One, and the number of sources for which the sender is missing data.
	One, Lacks uint64
}

// Kinds of state on the wire.
const (
	StateGauge = 1
	StateFeed  = 2
	StateLog   = 3
)

// Append appends the encoded message to b.
func (m *Beat) Append(b []byte) []byte {
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
		if s.Kind == StateLog {
			b = putUint(b, s.One)
			b = putUint(b, s.Lacks)
		}
		b = endRecord(b, at)
	}
	b = putUint(b, m.Every)
	if m.Wall > 0 {
		b = putUint(b, m.Wall)
	}
	return b
}

// Decode reads the message from r.
func (m *Beat) Decode(r Reader) error {
	*m = Beat{States: m.States[:0]}
	m.Seq, m.Sent, m.Echo, m.Hold, m.Flags = r.Uint(), r.Uint(), r.Uint(), r.Uint(), r.Uint()
	m.App = r.Bytes()
	for n := r.Count(); n > 0 && !r.bad(); n-- {
		e := r.record()
		s := StateInfo{Kind: byte(e.Uint()), Name: e.name(), Version: e.Uint(), Ver: e.Uint()}
		if s.Kind == StateLog {
			s.One, s.Lacks = e.added(), e.added()
		}
		r.Fail(e.Err)
		m.States = append(m.States, s)
	}
	m.Every, m.Wall = r.added(), r.added()
	return r.err()
}

// Gauge carries the entries of a gauge that changed between From and Ver, or all entries if Full is
// set.
type Gauge struct {
	Name      []byte
	Version   uint64
	Full      bool
	From, Ver uint64
	Entries   []GaugeEntry
}

// GaugeEntry is one key of a Gauge and its value.
type GaugeEntry struct {
	Key     []byte
	Value   []byte
	Removed bool
}

// Append appends the encoded message to b.
func (m *Gauge) Append(b []byte) []byte {
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

// Decode reads the message from r.
func (m *Gauge) Decode(r Reader) error {
	*m = Gauge{Entries: m.Entries[:0]}
	m.Name, m.Version, m.Full, m.From, m.Ver = r.name(), r.Uint(), r.Uint() != 0, r.Uint(), r.Uint()
	for n := r.Count(); n > 0 && !r.bad(); n-- {
		e := GaugeEntry{Key: r.Bytes(), Removed: r.Uint() != 0, Value: r.Bytes()}
		if len(e.Key) > MaxName {
			r.refuse()
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

// Feed carries the payloads Seq, Seq+1, … of a feed.
type Feed struct {
	Name     []byte
	Version  uint64
	Seq      uint64
	Payloads [][]byte
}

// Append appends the encoded message to b.
func (m *Feed) Append(b []byte) []byte {
	b = putBytes(b, m.Name)
	b = putUint(b, m.Version)
	b = putUint(b, m.Seq)
	b = putUint(b, uint64(len(m.Payloads)))
	for _, p := range m.Payloads {
		b = putBytes(b, p)
	}
	return b
}

// Decode reads the message from r.
func (m *Feed) Decode(r Reader) error {
	*m = Feed{Payloads: m.Payloads[:0]}
	m.Name, m.Version, m.Seq = r.name(), r.Uint(), r.Uint()
	for n := r.Count(); n > 0 && !r.bad(); n-- {
		m.Payloads = append(m.Payloads, r.Bytes())
	}
	return r.err()
}

// Direct carries one message to one member.
type Direct struct {
	Name    []byte
	Version uint64
	Payload []byte
}

// Append appends the encoded message to b.
func (m *Direct) Append(b []byte) []byte {
	b = putBytes(b, m.Name)
	b = putUint(b, m.Version)
	return putBytes(b, m.Payload)
}

// Decode reads the message from r.
func (m *Direct) Decode(r Reader) error {
	m.Name, m.Version, m.Payload = r.name(), r.Uint(), r.Bytes()
	return r.err()
}

// GaugeAsk requests all entries of a gauge.
type GaugeAsk struct{ Name []byte }

// Append encodes m.
func (m *GaugeAsk) Append(b []byte) []byte { return putBytes(b, m.Name) }

// Decode reads m.
func (m *GaugeAsk) Decode(r Reader) error {
	m.Name = r.name()
	return r.err()
}
