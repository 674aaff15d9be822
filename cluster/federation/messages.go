package federation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/internal/varint"
)

// Limits for received messages. A message over a limit is rejected as a whole.
const (
	MaxMessage   = filter.MaxPart + 64<<10 // bytes
	MaxPools     = 64                      // per cluster
	maxAddresses = 32
	maxDirect    = 512
	maxGroups    = 256 // entries in Ready, per pool
	maxText      = 253
	maxCount     = 1 << 40
	maxAmount    = 1e15
	maxWait      = time.Hour
)

// Message kinds. Numbers are never reused.
const (
	kindAsk    = 1
	kindState  = 2
	kindPart   = 3
	kindRefuse = 4

	wireVersion = 1
)

// ErrMessage means that a message cannot be decoded.
var ErrMessage = errors.New("federation: malformed message")

// ask is a message of the importer, sent on each beat and for each part of a filter. at is its own
// clock, which the answer repeats.
type ask struct {
	session uint64
	at      time.Duration
	beat    bool // requests a full say
	wants   []want
	print   uint64 // of the asking group; 0: unknown
}

type want struct {
	pool PoolKey
	at   filter.Position
	most uint32
}

// say is the complete state that an exporter sends to one cluster.
type say struct {
	session uint64
	at      time.Duration // of the last ask
	held    time.Duration // time since that ask arrived
	boot    uint64
	seq     uint64 // counts the says of this process to one asker
	lease   time.Duration
	leaving bool // this process is stopping; ask another
	replica string
	secret  [8]byte
	exports []ack
	heard   []verdict // on the receiver's pools
	print   uint64    // of the sending group; 0: unknown
	// served lists the pools for which the sender is the authority: one that is missing in exports
	// is not exported. servedKnown is false for older releases, which omit the list.
	served      []PoolKey
	servedKnown bool
}

// told is an export and the head of its filter for the receiver.
type ack struct {
	Export
	head filter.Head
}

// verdict is a cluster's response to another's export.
type verdict struct {
	pool   PoolKey
	state  State
	reason string
	shown  Shown
	why    string // reason for shown
}

// partOf is a part of a pool's filter.
type partOf struct {
	session uint64
	pool    PoolKey
	part    []byte
}

// refuse is a refusal of an ask.
type refuse struct {
	session uint64
	at      time.Duration
	reason  string
}

// appendText appends s in a form that readText accepts: it truncates long text and replaces
// characters that cannot be shown.
func appendText(b []byte, s string) []byte {
	if !plain(s) {
		s = strings.Map(func(c rune) rune {
			if c == utf8.RuneError || unicode.IsControl(c) {
				return '?'
			}
			return c
		}, s)
	}
	for len(s) > maxText {
		_, n := utf8.DecodeLastRuneInString(s[:min(len(s), maxText+utf8.UTFMax)])
		s = s[:min(len(s), maxText+utf8.UTFMax)-n]
	}
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// plain reports whether text can be shown unchanged.
func plain(s string) bool { return utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0 }

func readText(r *varint.Reader) string {
	n := r.Uint()
	if n > maxText {
		r.Fail(varint.ErrValue)
	}
	s := string(r.Take(n))
	if !plain(s) {
		r.Fail(varint.ErrValue)
		return ""
	}
	return s
}

func appendPool(b []byte, k PoolKey) []byte { return appendText(appendText(b, k.Namespace), k.Name) }

func readPool(r *varint.Reader) PoolKey {
	k := PoolKey{Namespace: readText(r), Name: readText(r)}
	if k.Name == "" {
		r.Fail(varint.ErrValue)
	}
	return k
}

func appendTime(b []byte, d time.Duration) []byte { return binary.AppendUvarint(b, uint64(max(d, 0))) }

func readTime(r *varint.Reader) time.Duration {
	v := r.Uint()
	if v > math.MaxInt64/2 {
		r.Fail(varint.ErrValue)
		return 0
	}
	return time.Duration(v)
}

func readCount(r *varint.Reader, most int) int {
	n := r.Count()
	if n > most {
		r.Fail(varint.ErrValue)
		return 0
	}
	return n
}

// readLess reads a count and rejects implausible values.
func readLess(r *varint.Reader) int64 {
	v := r.Uint()
	if v > maxCount {
		r.Fail(varint.ErrValue)
		return 0
	}
	return int64(v)
}

// readAmount reads a finite, non-negative float64.
func readAmount(r *varint.Reader) float64 {
	v := r.Float()
	if v < 0 || v > maxAmount {
		r.Fail(varint.ErrValue)
		return 0
	}
	return v
}

// appendAmount appends v in a form that readAmount accepts.
func appendAmount(b []byte, v float64) []byte {
	if !(v > 0) {
		v = 0
	}
	v = min(v, maxAmount)
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

func flags(list ...bool) (b byte) {
	for i, on := range list {
		if on {
			b |= 1 << i
		}
	}
	return b
}

func (m *ask) append(b []byte) []byte {
	b = append(b, wireVersion, kindAsk, flags(m.beat))
	b = binary.LittleEndian.AppendUint64(b, m.session)
	b = appendTime(b, m.at)
	b = binary.AppendUvarint(b, uint64(len(m.wants)))
	for _, w := range m.wants {
		b = appendPool(b, w.pool)
		b = binary.LittleEndian.AppendUint64(b, w.at.Epoch)
		for _, v := range [...]uint32{w.at.Since, w.at.Row, w.most} {
			b = binary.AppendUvarint(b, uint64(v))
		}
	}
	return binary.LittleEndian.AppendUint64(b, m.print)
}

func readAsk(r *varint.Reader) (m ask) {
	m.beat = r.Byte()&1 != 0
	m.session, m.at = r.Fixed64(), readTime(r)
	for range readCount(r, MaxPools) {
		w := want{pool: readPool(r), at: filter.Position{Epoch: r.Fixed64(), Since: r.Uint32(), Row: r.Uint32()}, most: r.Uint32()}
		if r.Err != nil {
			return m
		}
		m.wants = append(m.wants, w)
	}
	m.print = readPrint(r)
	return m
}

// readPrint reads a field that older versions omit.
func readPrint(r *varint.Reader) uint64 {
	if r.Err != nil || len(r.B) == 0 {
		return 0
	}
	return r.Fixed64()
}

func (m *say) append(b []byte) []byte {
	b = append(b, wireVersion, kindState, flags(m.leaving))
	for _, v := range [...]uint64{m.session, m.boot} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = append(b, m.secret[:]...)
	b = appendTime(appendTime(appendTime(b, m.at), m.held), m.lease)
	b = binary.AppendUvarint(b, m.seq)
	b = appendText(b, m.replica)
	b = binary.AppendUvarint(b, uint64(len(m.exports)))
	var one []byte
	for i := range m.exports {
		one = m.exports[i].append(one[:0])
		b = append(binary.AppendUvarint(b, uint64(len(one))), one...)
	}
	b = binary.AppendUvarint(b, uint64(len(m.heard)))
	for _, v := range m.heard {
		b = appendPool(b, v.pool)
		b = append(b, byte(v.state))
		b = appendText(b, v.reason)
		b = append(b, byte(v.shown))
		b = appendText(b, v.why)
	}
	b = binary.LittleEndian.AppendUint64(b, m.print)
	if !m.servedKnown {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(m.served)))
	for _, k := range m.served {
		b = appendPool(b, k)
	}
	return b
}

func readState(r *varint.Reader) (m say) {
	m.leaving = r.Byte()&1 != 0
	m.session, m.boot = r.Fixed64(), r.Fixed64()
	copy(m.secret[:], r.Take(8))
	m.at, m.held, m.lease = readTime(r), readTime(r), readTime(r)
	m.seq, m.replica = r.Uint(), readText(r)
	for range readCount(r, MaxPools) {
		one := varint.Reader{B: r.Bytes()}
		t := readAck(&one)
		if one.Err != nil {
			r.Fail(one.Err)
		}
		if r.Err != nil {
			return m
		}
		for i := range m.exports {
			if m.exports[i].Pool == t.Pool {
				r.Fail(varint.ErrValue) // duplicate pool
			}
		}
		m.exports = append(m.exports, t)
	}
	for range readCount(r, MaxPools) {
		v := verdict{pool: readPool(r), state: State(r.Byte()), reason: readText(r), shown: Shown(r.Byte()), why: readText(r)}
		if v.state >= numStates || v.shown >= numShown {
			r.Fail(varint.ErrValue)
		}
		if r.Err != nil {
			return m
		}
		m.heard = append(m.heard, v)
	}
	m.print = readPrint(r)
	if r.Err == nil && len(r.B) > 0 {
		m.servedKnown = true
		for range readCount(r, MaxPools) {
			m.served = append(m.served, readPool(r))
		}
	}
	return m
}

// omitted lists the parts of an export that do not fit in a message, or "".
func (e *Export) omitted() string {
	var list []string
	for _, part := range [...]struct {
		what      string
		has, room int
	}{
		{"groups of model and role", len(e.Ready), maxGroups}, {"pickers", len(e.EPPs), maxAddresses},
		{"gateways", len(e.Gateways), maxAddresses}, {"addresses of endpoints", len(e.Direct), maxDirect},
	} {
		if part.has > part.room {
			list = append(list, fmt.Sprintf("%d of %d %s", part.has-part.room, part.has, part.what))
		}
	}
	return strings.Join(list, ", ")
}

func (t *ack) append(b []byte) []byte {
	b = appendPool(b, t.Pool)
	b = append(b, flags(t.Draining))
	for _, list := range [...][]Address{t.EPPs, t.Gateways} {
		list = list[:min(len(list), maxAddresses)]
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, a := range list {
			b = appendText(appendText(appendText(b, a.HostPort), a.SNI), a.Host)
		}
	}
	direct := t.Direct[:min(len(t.Direct), maxDirect)]
	b = binary.AppendUvarint(b, uint64(len(direct)))
	for _, a := range direct {
		b = appendText(b, a)
	}
	b = appendText(appendText(b, t.Region), t.Zone)
	ready := t.Ready[:min(len(t.Ready), maxGroups)]
	b = binary.AppendUvarint(b, uint64(len(ready)))
	for _, g := range ready {
		b = append(appendText(b, g.Model), g.Role)
		b = binary.AppendUvarint(b, uint64(min(max(g.Count, 0), maxCount)))
	}
	for _, v := range [...]int64{t.Load.Requests, t.Load.Waiting, t.Load.Queued, t.Capacity.Requests, t.Capacity.KVTokens} {
		b = binary.AppendUvarint(b, uint64(min(max(v, 0), maxCount)))
	}
	b = appendTime(appendTime(b, t.Load.Wait), t.Load.MeanWait)
	p := &t.Price
	for _, v := range [...]float64{t.Load.KVUsage, t.Load.Saturation, p.Base, p.PerToken, p.PerPair, p.Step, p.PerSeq, p.PerContext, p.Money} {
		b = appendAmount(b, v)
	}
	b = appendText(b, p.Egress)
	b = t.head.Append(b)
	return binary.AppendUvarint(b, uint64(min(max(t.Engines, 0), maxCount)))
}

func readAddresses(r *varint.Reader) (list []Address) {
	for range readCount(r, maxAddresses) {
		a := Address{HostPort: readText(r), SNI: readText(r), Host: readText(r)}
		if r.Err != nil {
			return nil
		}
		list = append(list, a)
	}
	return list
}

func readAck(r *varint.Reader) (t ack) {
	t.Pool = readPool(r)
	t.Draining = r.Byte()&1 != 0
	t.EPPs, t.Gateways = readAddresses(r), readAddresses(r)
	for range readCount(r, maxDirect) {
		t.Direct = append(t.Direct, readText(r))
	}
	t.Region, t.Zone = readText(r), readText(r)
	for range readCount(r, maxGroups) {
		t.Ready = append(t.Ready, Ready{Model: readText(r), Role: r.Byte(), Count: int(readLess(r))})
	}
	l, c, p := &t.Load, &t.Capacity, &t.Price
	l.Requests, l.Waiting, l.Queued = readLess(r), readLess(r), readLess(r)
	c.Requests, c.KVTokens = readLess(r), readLess(r)
	l.Wait, l.MeanWait = min(readTime(r), maxWait), min(readTime(r), maxWait)
	for _, v := range [...]*float64{&l.KVUsage, &l.Saturation, &p.Base, &p.PerToken, &p.PerPair, &p.Step, &p.PerSeq, &p.PerContext, &p.Money} {
		*v = readAmount(r)
	}
	p.Egress = readText(r)
	t.head = filter.ReadHead(r)
	if len(r.B) > 0 { // older releases omit it
		t.Engines = int(readLess(r))
	}
	return t
}

func (m *partOf) append(b []byte) []byte {
	b = append(b, wireVersion, kindPart)
	b = binary.LittleEndian.AppendUint64(b, m.session)
	return append(appendPool(b, m.pool), m.part...)
}

func readPartOf(r *varint.Reader) (m partOf) {
	m.session, m.pool = r.Fixed64(), readPool(r)
	m.part = r.Take(uint64(len(r.B)))
	return m
}

func (m *refuse) append(b []byte) []byte {
	b = append(b, wireVersion, kindRefuse)
	b = binary.LittleEndian.AppendUint64(b, m.session)
	return appendText(appendTime(b, m.at), m.reason)
}

// IsRefusal reports whether a message refuses an ask. A transport that chose the replica itself
// then chooses another.
func IsRefusal(b []byte) bool { return len(b) > 1 && b[0] == wireVersion && b[1] == kindRefuse }

func readRefuse(r *varint.Reader) refuse {
	return refuse{session: r.Fixed64(), at: readTime(r), reason: readText(r)}
}

// decodeMessage decodes a message: an *ask, *say, *partOf or *refuse. It ignores bytes after the
// known fields, which later versions may add.
func decodeMessage(b []byte) (any, error) {
	if len(b) > MaxMessage {
		return nil, ErrMessage
	}
	r := varint.Reader{B: b}
	var m any
	switch version, kind := r.Byte(), r.Byte(); {
	case version != wireVersion:
		return nil, ErrMessage
	case kind == kindAsk:
		v := readAsk(&r)
		m = &v
	case kind == kindState:
		v := readState(&r)
		m = &v
	case kind == kindPart:
		v := readPartOf(&r)
		m = &v
	case kind == kindRefuse:
		v := readRefuse(&r)
		m = &v
	default:
		return nil, ErrMessage
	}
	if r.Err != nil {
		return nil, ErrMessage
	}
	return m, nil
}
