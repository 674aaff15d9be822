package group

import "encoding/binary"

// Entry is one delta of a run: its payload and its first and last sequence number.
type Entry struct {
	First, Last uint64
	Payload     []byte
}

// DeltaRun is a run of deltas of one source.
type DeltaRun struct {
	Source  []byte
	Inc     uint64
	Entries []Entry
}

// Append appends the encoded run to b.
func (g *DeltaRun) Append(b []byte) []byte {
	b = putBytes(b, g.Source)
	b = putUint(b, g.Inc)
	b = putUint(b, uint64(len(g.Entries)))
	next := uint64(0)
	for _, e := range g.Entries {
		// Each delta with a single, consecutive sequence number costs one byte here.
		b = putUint(b, (e.Last-e.First)<<1|flag(e.First != next))
		if e.First != next {
			b = putUint(b, e.First)
		}
		b = putBytes(b, e.Payload)
		next = e.Last + 1
	}
	return b
}

// Decode reads the run from r.
func (g *DeltaRun) Decode(r *Reader) {
	g.Entries = g.Entries[:0]
	g.Source, g.Inc = r.name(), r.Uint()
	next := uint64(0)
	for n := r.Count(); n > 0 && !r.bad(); n-- {
		e := Entry{First: next}
		span := r.Uint()
		if span&1 != 0 {
			e.First = r.Uint()
		}
		e.Last = e.First + span>>1
		e.Payload = r.Bytes()
		if e.Last < e.First || e.Last == ^uint64(0) {
			r.refuse()
		}
		next = e.Last + 1
		g.Entries = append(g.Entries, e)
	}
}

// Number is the position of a frame in one of a log's two sequences: broadcast frames, or (One)
// frames for this receiver only. It is zero in frames of members older than MinorNumbers.
type Number struct {
	N   uint64
	One bool
}

// Append appends the encoded number to b, at the end of a message.
func (n Number) Append(b []byte) []byte { return putUint(b, n.N<<1|flag(n.One)) }

func (r *Reader) number() Number {
	v := r.added()
	return Number{v >> 1, v&1 != 0}
}

// Numbers are the last numbers of both sequences.
type Numbers struct{ All, One uint64 }

// Check is the digest of a source's content at the sender after the deltas of a group. It is sent
// only for sources without losses at the sender.
type Check struct {
	Group int
	Sum   uint32 // Digest.Fold
}

// AppendChecks encodes the checks of a message, after its Number.
func AppendChecks(b []byte, checks []Check) []byte {
	b = putUint(b, uint64(len(checks)))
	for _, c := range checks {
		b = binary.LittleEndian.AppendUint32(putUint(b, uint64(c.Group)), c.Sum)
	}
	return b
}

// Deltas carries groups of live deltas, followed by a Number and Checks.
type Deltas struct {
	Name    []byte
	Version uint64
	Number  Number
	Checks  []Check // in order of their groups
	Done    []bool  // by group: true once merged; set by the receiver
	rest    Reader
	scratch DeltaRun
}

// DeltasHead appends the fields that precede the groups.
func DeltasHead(b []byte, name string, version uint64, groups int) []byte {
	b = putBytes(b, name)
	b = putUint(b, version)
	return putUint(b, uint64(groups))
}

// Decode reads m and validates all of its groups.
func (m *Deltas) Decode(r Reader) error {
	m.Name, m.Version = r.name(), r.Uint()
	n := r.Count()
	m.rest, m.Done = r, append(m.Done[:0], make([]bool, n)...)
	for range n {
		if m.scratch.Decode(&r); r.bad() {
			break
		}
	}
	m.Number = r.number()
	m.decodeChecks(&r)
	return r.err()
}

func (m *Deltas) decodeChecks(r *Reader) {
	m.Checks = m.Checks[:0]
	if len(r.B) == 0 {
		return // sent by a member older than MinorChecks
	}
	next := 0
	for n := r.Count(); n > 0 && !r.bad(); n-- {
		at := r.Uint()
		if at < uint64(next) || at >= uint64(len(m.Done)) {
			r.refuse()
			return
		}
		next = int(at) + 1
		m.Checks = append(m.Checks, Check{Group: int(at)})
		if b := r.Take(4); len(b) == 4 {
			m.Checks[len(m.Checks)-1].Sum = binary.LittleEndian.Uint32(b)
		}
	}
}

// Each calls fn for every group. A group is valid until fn returns.
func (m *Deltas) Each(fn func(i int, g *DeltaRun)) {
	r := m.rest
	for i := range m.Done {
		m.scratch.Decode(&r)
		fn(i, &m.scratch)
	}
}

// Claim is a digest's entry for one source.
type Claim struct {
	Source  []byte
	Pos     Position
	Digest  Digest
	Reading bool
}

// Digests carries claims. Full means that the list is complete. The message either has a Number or
// replaces all frames up to Covers.
type Digests struct {
	Name    []byte
	Version uint64
	Full    bool
	Claims  []Claim
	Number  Number
	Covers  Numbers
	Stamp   uint64 // increases with every message of a sender, across all receivers
}

// Append appends the encoded message to b.
func (m *Digests) Append(b []byte) []byte {
	b = putBytes(b, m.Name)
	b = putUint(b, m.Version)
	b = putUint(b, flag(m.Full))
	b = putUint(b, uint64(len(m.Claims)))
	for i := range m.Claims {
		b = m.Claims[i].Append(b)
	}
	b = m.Number.Append(b)
	return putUint(putUint(putUint(b, m.Covers.All), m.Covers.One), m.Stamp)
}

// Append appends the encoded claim to b.
func (c *Claim) Append(b []byte) []byte {
	b, at := beginRecord(b)
	b = putBytes(b, c.Source)
	b = putUint(b, c.Pos.Inc)
	b = putUint(b, c.Pos.Next)
	b = putUint(b, flag(c.Reading))
	b = putUint(b, c.Digest.Count)
	b = binary.LittleEndian.AppendUint64(b, c.Digest.Xor)
	b = putUint(b, c.Pos.Lost)
	return endRecord(b, at)
}

// Decode reads the message from r.
func (m *Digests) Decode(r Reader) error {
	*m = Digests{Claims: m.Claims[:0]}
	m.Name, m.Version, m.Full = r.name(), r.Uint(), r.Uint() != 0
	for n := r.Count(); n > 0 && !r.bad(); n-- {
		e := r.record()
		var c Claim
		c.Source, c.Pos.Inc, c.Pos.Next = e.name(), e.Uint(), e.Uint()
		c.Reading = e.Uint()&1 != 0
		c.Digest.Count, c.Digest.Xor = e.Uint(), e.Fixed64()
		c.Pos.Lost = e.added() // since Minor 1
		if r.Fail(e.Err); c.Pos.Lost > c.Pos.Next {
			r.refuse()
		}
		m.Claims = append(m.Claims, c)
	}
	m.Number, m.Covers, m.Stamp = r.number(), Numbers{r.added(), r.added()}, r.added()
	return r.err()
}

// Missed acknowledges all frames up to Have and requests the content of later ones.
type Missed struct {
	Name []byte
	Have Numbers
}

// Append encodes m.
func (m *Missed) Append(b []byte) []byte {
	return putUint(putUint(putBytes(b, m.Name), m.Have.All), m.Have.One)
}

// Decode reads m.
func (m *Missed) Decode(r Reader) error {
	m.Name, m.Have = r.name(), Numbers{r.Uint(), r.Uint()}
	return r.err()
}

// Tips carries the positions of sources, for members that read the same sources.
type Tips struct {
	Name    []byte
	Version uint64
	Tips    []Tip
	Number  Number
}

// Tip is a source, by its nick, and the next expected sequence number.
type Tip struct {
	Nick [TipNick]byte
	Next uint64
}

// TipNick is the length of a nick in a Tip.
const TipNick = 7

// Append encodes m.
func (m *Tips) Append(b []byte) []byte {
	b = putUint(putBytes(b, m.Name), m.Version)
	b = putUint(b, uint64(len(m.Tips)))
	for i := range m.Tips {
		b = putUint(append(b, m.Tips[i].Nick[:]...), m.Tips[i].Next)
	}
	return m.Number.Append(b)
}

// Decode reads m.
func (m *Tips) Decode(r Reader) error {
	*m = Tips{Tips: m.Tips[:0], Name: r.name(), Version: r.Uint()}
	for n := r.Count(); n > 0 && !r.bad(); n-- {
		var t Tip
		copy(t.Nick[:], r.Take(TipNick))
		t.Next = r.Uint()
		m.Tips = append(m.Tips, t)
	}
	m.Number = r.number()
	return r.err()
}

// Ask requests a range of deltas or a page of a snapshot. At is the requester's position. The answer
// to a request for a range may be the first page of a snapshot if Force is set, or if the deltas are
// gone and the snapshot has lost no more than At. A request for page 0 with a zero Snap starts a
// snapshot.
type Ask struct {
	Name, Source []byte
	Version      uint64
	ID           uint64
	At           Position
	Force        bool
	Snap         Position
	Page         uint64
}

// Append appends the encoded message to b.
func (m *Ask) Append(b []byte) []byte {
	b = putBytes(b, m.Name)
	b = putUint(b, m.Version)
	b = putBytes(b, m.Source)
	for _, v := range [...]uint64{
		m.ID, m.At.Inc, m.At.Next, m.At.Lost, flag(m.Force),
		m.Snap.Inc, m.Snap.Next, m.Snap.Lost, m.Page,
	} {
		b = putUint(b, v)
	}
	return b
}

// Decode reads the message from r.
func (m *Ask) Decode(r Reader) error {
	*m = Ask{Name: r.name(), Version: r.Uint(), Source: r.name(), ID: r.Uint()}
	m.At = Position{r.Uint(), r.Uint(), r.Uint()}
	m.Force = r.Uint() != 0
	m.Snap = Position{r.Uint(), r.Uint(), r.Uint()}
	m.Page = r.Uint()
	return r.err()
}

// Status of an answer.
const (
	StatusOK   = 0
	StatusGone = 1 // the requested data is not held, or no longer
	StatusBusy = 2 // retry later
)

// RangeReply answers a request for a range with consecutive deltas and the sender's position.
type RangeReply struct {
	Name    []byte
	Version uint64
	ID      uint64
	Status  uint64
	Pos     Position
	Deltas  DeltaRun
}

// Append appends the encoded message to b.
func (m *RangeReply) Append(b []byte) []byte {
	b = putBytes(b, m.Name)
	for _, v := range [...]uint64{m.Version, m.ID, m.Status, m.Pos.Inc, m.Pos.Next, m.Pos.Lost} {
		b = putUint(b, v)
	}
	return m.Deltas.Append(b)
}

// Decode reads the message from r.
func (m *RangeReply) Decode(r Reader) error {
	entries := m.Deltas.Entries
	*m = RangeReply{Name: r.name(), Version: r.Uint(), ID: r.Uint(), Status: r.Uint()}
	m.Pos = Position{r.Uint(), r.Uint(), r.Uint()}
	m.Deltas.Entries = entries
	m.Deltas.Decode(&r)
	return r.err()
}

// PageReply answers a request for a page.
type PageReply struct {
	Name, Source []byte
	Version      uint64
	ID           uint64
	Status       uint64
	Snap         Position
	Digest       Digest
	Page, Pages  uint64
	Bytes        uint64 // size of the whole snapshot
	Payload      []byte
}

// Append appends the encoded message to b.
func (m *PageReply) Append(b []byte) []byte {
	b = putBytes(b, m.Name)
	b = putUint(b, m.Version)
	b = putBytes(b, m.Source)
	for _, v := range [...]uint64{
		m.ID, m.Status, m.Snap.Inc, m.Snap.Next, m.Snap.Lost,
		m.Digest.Count, m.Digest.Xor, m.Page, m.Pages, m.Bytes,
	} {
		b = putUint(b, v)
	}
	return putBytes(b, m.Payload)
}

// Decode reads the message from r.
func (m *PageReply) Decode(r Reader) error {
	*m = PageReply{Name: r.name(), Version: r.Uint(), Source: r.name(), ID: r.Uint(), Status: r.Uint()}
	m.Snap = Position{r.Uint(), r.Uint(), r.Uint()}
	m.Digest = Digest{r.Uint(), r.Uint()}
	m.Page, m.Pages, m.Bytes, m.Payload = r.Uint(), r.Uint(), r.Uint(), r.Bytes()
	return r.err()
}
