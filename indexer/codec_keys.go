package indexer

import (
	"encoding/binary"
	"math"
)

// MaxKeys is the longest list that DecodeKeys accepts.
const MaxKeys = 1 << 16

// AppendKeys appends a list of keys to dst: their count (varint) and 8 bytes
// for each. Replicas send it with the endpoint's name and the time of a
// decision, and the receiver calls Approx.Record.
func AppendKeys(dst []byte, keys []BlockKey) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(keys)))
	for _, k := range keys {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(k))
	}
	return dst
}

// DecodeKeys reads a list of AppendKeys from the start of b. It appends the
// keys to dst and returns the bytes behind the list. Any input is safe: a count
// over MaxKeys, or beyond what b holds, is an error before anything is
// allocated, and dst then comes back as it was.
func DecodeKeys(b []byte, dst []BlockKey) (keys []BlockKey, rest []byte, err error) {
	r := wireReader{b: b}
	n := r.uvarint()
	if n > MaxKeys {
		r.fail(ErrCodecLimit)
	}
	if !r.has(n * 8) {
		return dst, nil, r.err
	}
	for range n {
		dst = append(dst, BlockKey(r.uint64()))
	}
	return dst, r.b, nil
}

// wireReader reads from the front of b. After the first error every read
// gives zero and the error stays.
type wireReader struct {
	b   []byte
	err error
}

func (r *wireReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// has tells whether n more bytes are there and no error has come before.
func (r *wireReader) has(n uint64) bool {
	if r.err == nil && n > uint64(len(r.b)) {
		r.err = ErrCodecShort
	}
	return r.err == nil
}

func (r *wireReader) byte() byte {
	if !r.has(1) {
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *wireReader) uint64() uint64 {
	if !r.has(8) {
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *wireReader) uint32le() uint32 {
	if !r.has(4) {
		return 0
	}
	v := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

func (r *wireReader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	switch {
	case n > 0:
		r.b = r.b[n:]
		return v
	case n == 0:
		r.fail(ErrCodecShort)
	default:
		r.fail(ErrCodecValue)
	}
	return 0
}

func (r *wireReader) uint32() uint32 {
	v := r.uvarint()
	if v > math.MaxUint32 {
		r.fail(ErrCodecValue)
		return 0
	}
	return uint32(v)
}
