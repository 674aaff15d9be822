package wire

import (
	"encoding/binary"
	"errors"
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
	Minor = 2

	// MinorNicks is since when nicks are understood (Deltas).
	MinorNicks = 2

	// MaxFrame bounds every frame, both ways.
	MaxFrame = 1 << 20
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
func Body(frame []byte) Reader { return Reader{b: frame[HeaderLen:]} }

func putUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func putBytes[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Reader takes fields from the front of b. After the first bad field it is
// bad for good and gives zeros.
type Reader struct {
	b   []byte
	bad bool
}

// Name reads the name of a state, with which every message about a state
// begins, and leaves r where it was.
func (r Reader) Name() ([]byte, error) {
	name := r.name()
	return name, r.err()
}

// added gives a field that older members do not write: zero at the end.
func (r *Reader) added() uint64 {
	if len(r.b) == 0 {
		return 0
	}
	return r.uint()
}

func (r *Reader) uint() uint64 {
	if r.bad {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// bytes gives a part of the frame, not a copy.
func (r *Reader) bytes() []byte {
	n := r.uint()
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// name gives a non-empty byte string of at most MaxName.
func (r *Reader) name() []byte {
	v := r.bytes()
	if len(v) == 0 || len(v) > MaxName {
		r.bad = true
	}
	return v
}

func (r *Reader) u64() uint64 {
	if r.bad || len(r.b) < 8 {
		r.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// record gives a reader of the next length-prefixed record.
func (r *Reader) record() Reader {
	v := r.bytes()
	return Reader{b: v, bad: r.bad}
}

// count gives the number of list items that follow, of at least one byte each.
func (r *Reader) count() int {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.bad = true
		return 0
	}
	return int(n)
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
