package group

import (
	"encoding/binary"
	"errors"

	"github.com/grapevine-epp/grapevine/internal/varint"
)

// Wire constants. A frame is Major, Minor, kind, the sender's boot (8 bytes, little endian), then
// the kind's fields. Numbers are unsigned varints unless noted otherwise. Byte strings are preceded
// by their length.
//
// Members with the same Major are compatible. New fields are only added at the end of a message or
// of a length-prefixed record. Readers ignore fields they do not know and read absent fields as
// zero. Unknown kinds and states are ignored and counted.
const (
	Major = 1
	Minor = 5

	// MinorNicks is the first version that supports nicks (Deltas).
	MinorNicks = 2
	// MinorNumbers is the first version that numbers the frames of a log and sends claims only for
	// exceptions.
	MinorNumbers = 3
	// MinorChecks is the first version in which deltas may carry checks, and in which heartbeats
	// contain their period and omit unchanged fields.
	MinorChecks = 4
	// MinorRelay is the first version in which members forward broadcasts within their zone.
	MinorRelay = 5

	// MaxFrame bounds every frame, sent or received.
	MaxFrame = 1 << 20
	// MaxPrefix bounds the name in front of a frame, if several groups of nodes share a connection.
	MaxPrefix = 256
	// MaxGauge bounds one origin's keys and values of one gauge, so that all of them fit in a
	// frame.
	MaxGauge = MaxFrame / 16 * 15
	// MaxName bounds names of states and sources.
	MaxName = 255
	// HeaderLen is the length of the fixed part of a frame.
	HeaderLen = 11
)

// Kinds of frame.
const (
	KindBeat       = 1  // heartbeat
	KindGauge      = 2  // changed gauge entries, or all entries
	KindGaugeAsk   = 3  // request for all entries of a gauge
	KindFeed       = 4  // feed payloads
	KindDelta      = 5  // live deltas of a log
	KindDigest     = 6  // positions and digests of a log's sources
	KindRangeAsk   = 7  // request for deltas from a position
	KindRangeReply = 8  // deltas, or a notice that they are gone
	KindPageAsk    = 9  // request for a page of a snapshot
	KindPageReply  = 10 // a page
	KindMissed     = 11 // request for the content of missed frames
	KindTips       = 12 // positions of sources that the receiver reads itself
	KindRelay      = 13 // KindDelta for the receiver to forward within its zone
	KindRelayed    = 14 // KindRelay of another member, forwarded
	KindDirect     = 15 // a message to the receiver only
)

// ErrMalformed is returned for a frame that cannot be decoded.
var ErrMalformed = errors.New("cluster: malformed frame")

// Header appends the fixed part of a frame.
func Header(b []byte, kind byte, boot uint64) []byte {
	b = append(b, Major, Minor, kind)
	return binary.LittleEndian.AppendUint64(b, boot)
}

// Boot returns the sender's boot. frame must have at least HeaderLen bytes.
func Boot(frame []byte) uint64 { return binary.LittleEndian.Uint64(frame[3:]) }

// Body returns a reader of a frame's fields, after the header.
func Body(frame []byte) Reader { return Reader{varint.Reader{B: frame[HeaderLen:]}} }

func putUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func putBytes[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Reader reads fields from the front of a frame. After the first invalid field it returns only
// zeros.
type Reader struct{ varint.Reader }

// Name returns the state's name, with which every message about a state begins. It does not advance
// r.
func (r Reader) Name() ([]byte, error) {
	name := r.name()
	return name, r.err()
}

func (r *Reader) err() error {
	if r.Err != nil {
		return ErrMalformed
	}
	return nil
}

func (r *Reader) bad() bool { return r.Err != nil }

// refuse marks the current field as invalid.
func (r *Reader) refuse() { r.Fail(ErrMalformed) }

// added reads a field that older members omit. It returns zero at the end of the message.
func (r *Reader) added() uint64 {
	if len(r.B) == 0 {
		return 0
	}
	return r.Uint()
}

// name reads a non-empty byte string of at most MaxName bytes.
func (r *Reader) name() []byte {
	v := r.Bytes()
	if len(v) == 0 || len(v) > MaxName {
		r.refuse()
	}
	return v
}

// record returns a reader for the next length-prefixed record.
func (r *Reader) record() Reader {
	v := r.Bytes()
	return Reader{varint.Reader{B: v, Err: r.Err}}
}

// beginRecord starts a record of unknown length; endRecord fills in the length. Records are at most
// 16 KiB, so the length fits in two bytes.
func beginRecord(b []byte) ([]byte, int) {
	return append(b, 0, 0), len(b)
}

func endRecord(b []byte, at int) []byte {
	n := len(b) - at - 2
	b[at] = byte(n&0x7f) | 0x80
	b[at+1] = byte(n >> 7)
	return b
}
