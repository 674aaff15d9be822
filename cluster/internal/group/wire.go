package group

import (
	"encoding/binary"
	"errors"

	"github.com/grapevine-epp/grapevine/internal/varint"
)

// Wire constants. A frame is Major, Minor, kind, the sender's boot (8 bytes,
// little endian), then the kind's fields. Numbers are unsigned varints unless
// said otherwise; byte strings are preceded by their length.
//
// Members of equal Major understand each other whatever their Minor: fields
// are only added at the end of a message or of a length-prefixed record,
// readers ignore what follows the fields they know and take absent ones as
// zero, and unknown kinds and states are ignored and counted.
const (
	Major = 1
	Minor = 5

	// MinorNicks is since when nicks are understood (Deltas).
	MinorNicks = 2
	// MinorNumbers is since when frames that say something of a log are numbered, and
	// claims are made by exception.
	MinorNumbers = 3
	// MinorChecks is since when deltas may carry checks, heartbeats say how often they come,
	// and leave out what did not change.
	MinorChecks = 4
	// MinorRelay is since when members pass on what is meant for all of their zone.
	MinorRelay = 5

	// MaxFrame bounds every frame, both ways.
	MaxFrame = 1 << 20
	// MaxGauge bounds one origin's keys and values of one gauge, so that all of them fit a frame.
	MaxGauge = MaxFrame / 16 * 15
	// MaxName bounds names of states and sources.
	MaxName = 255
	// HeaderLen is the length of the fixed part of a frame.
	HeaderLen = 11
)

// Kinds of frame.
const (
	KindBeat       = 1  // heartbeat
	KindGauge      = 2  // gauge entries that changed, or all of them
	KindGaugeAsk   = 3  // ask for all entries of a gauge
	KindFeed       = 4  // feed payloads
	KindDelta      = 5  // live deltas of a log
	KindDigest     = 6  // positions and digests of a log's sources
	KindRangeAsk   = 7  // ask for deltas from a position
	KindRangeReply = 8  // deltas, or that they are gone
	KindPageAsk    = 9  // ask for a page of a snapshot
	KindPageReply  = 10 // a page
	KindMissed     = 11 // ask for what numbered frames said that did not come
	KindTips       = 12 // how far sources are that the receiver reads itself
	KindRelay      = 13 // as KindDelta, to be passed on to the others of the receiver's zone
	KindRelayed    = 14 // what another member sent as KindRelay, passed on
)

// ErrMalformed says that a frame cannot be decoded.
var ErrMalformed = errors.New("cluster: malformed frame")

// Header appends the fixed part of a frame.
func Header(b []byte, kind byte, boot uint64) []byte {
	b = append(b, Major, Minor, kind)
	return binary.LittleEndian.AppendUint64(b, boot)
}

// Boot returns the sender's boot of a frame of at least HeaderLen bytes.
func Boot(frame []byte) uint64 { return binary.LittleEndian.Uint64(frame[3:]) }

// Body returns a reader of a frame's fields, after the header.
func Body(frame []byte) Reader { return Reader{varint.Reader{B: frame[HeaderLen:]}} }

func putUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func putBytes[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Reader takes fields from the front of a frame. After the first bad field it is bad for
// good and gives zeros.
type Reader struct{ varint.Reader }

// Name reads the name of a state, with which every message about a state
// begins, and leaves r where it was.
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

// refuse says that a field has an impossible value.
func (r *Reader) refuse() { r.Fail(ErrMalformed) }

// added gives a field that older members do not write: zero at the end.
func (r *Reader) added() uint64 {
	if len(r.B) == 0 {
		return 0
	}
	return r.Uint()
}

// name gives a non-empty byte string of at most MaxName.
func (r *Reader) name() []byte {
	v := r.Bytes()
	if len(v) == 0 || len(v) > MaxName {
		r.refuse()
	}
	return v
}

// record gives a reader of the next length-prefixed record.
func (r *Reader) record() Reader {
	v := r.Bytes()
	return Reader{varint.Reader{B: v, Err: r.Err}}
}

// beginRecord starts a record of unknown length, which endRecord completes.
// Records are at most 16 KiB, so that two bytes hold the length.
func beginRecord(b []byte) ([]byte, int) {
	return append(b, 0, 0), len(b)
}

func endRecord(b []byte, at int) []byte {
	n := len(b) - at - 2
	b[at] = byte(n&0x7f) | 0x80
	b[at+1] = byte(n >> 7)
	return b
}
