package varint

import (
	"encoding/binary"
	"errors"
	"math"
)

// Errors of a Reader.
var (
	ErrShort = errors.New("varint: input cut short")
	ErrValue = errors.New("varint: impossible value")
)

// Reader takes values from the front of B. After the first error every read gives zero
// and Err stays.
type Reader struct {
	B   []byte // unread bytes
	Err error
}

// Fail notes err unless there was an error before.
func (r *Reader) Fail(err error) {
	if r.Err == nil {
		r.Err = err
	}
}

// Has reports whether n more bytes are available and no error has occurred. If fewer are available,
// it sets Err.
func (r *Reader) Has(n uint64) bool {
	if r.Err == nil && n > uint64(len(r.B)) {
		r.Err = ErrShort
	}
	return r.Err == nil
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if !r.Has(1) {
		return 0
	}
	v := r.B[0]
	r.B = r.B[1:]
	return v
}

// Fixed64 reads eight bytes, little endian.
func (r *Reader) Fixed64() uint64 {
	if !r.Has(8) {
		return 0
	}
	v := binary.LittleEndian.Uint64(r.B)
	r.B = r.B[8:]
	return v
}

// Fixed32 reads four bytes, little endian.
func (r *Reader) Fixed32() uint32 {
	if !r.Has(4) {
		return 0
	}
	v := binary.LittleEndian.Uint32(r.B)
	r.B = r.B[4:]
	return v
}

// Uint reads an unsigned varint.
func (r *Reader) Uint() uint64 {
	if r.Err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.B)
	if !r.advance(n) {
		return 0
	}
	return v
}

// Uint32 reads an unsigned varint that fits 32 bits.
func (r *Reader) Uint32() uint32 {
	v := r.Uint()
	if v > math.MaxUint32 {
		r.Fail(ErrValue)
		return 0
	}
	return uint32(v)
}

// Int reads a signed varint.
func (r *Reader) Int() int64 {
	if r.Err != nil {
		return 0
	}
	v, n := binary.Varint(r.B)
	if !r.advance(n) {
		return 0
	}
	return v
}

// Natural reads a signed varint that must not be negative.
func (r *Reader) Natural() int64 {
	v := r.Int()
	if v < 0 {
		r.Fail(ErrValue)
		return 0
	}
	return v
}

// Float reads a float64 of eight bytes, which must be finite.
func (r *Reader) Float() float64 {
	v := math.Float64frombits(r.Fixed64())
	if math.IsNaN(v) || math.IsInf(v, 0) {
		r.Fail(ErrValue)
		return 0
	}
	return v
}

// Take reads n bytes, which stay a part of the input.
func (r *Reader) Take(n uint64) []byte {
	if !r.Has(n) {
		return nil
	}
	v := r.B[:n:n]
	r.B = r.B[n:]
	return v
}

// Bytes reads a byte string preceded by its length as an unsigned varint. It stays a part
// of the input.
func (r *Reader) Bytes() []byte { return r.Take(r.Uint()) }

// Count reads how many list items follow, each of which takes at least one byte.
func (r *Reader) Count() int {
	n := r.Uint()
	if !r.Has(n) {
		return 0
	}
	return int(n)
}

// advance consumes a varint of n bytes, where n is the result of encoding/binary.
func (r *Reader) advance(n int) bool {
	switch {
	case n > 0:
		r.B = r.B[n:]
	case n == 0:
		r.Fail(ErrShort)
	default:
		r.Fail(ErrValue)
	}
	return n > 0
}
