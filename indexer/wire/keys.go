package wire

import (
	"encoding/binary"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/varint"
)

// MaxKeys is the longest list that DecodeKeys accepts.
const MaxKeys = 1 << 16

// AppendKeys appends a list of keys to dst: their count (varint) and 8 bytes each. Replicas send it
// with the endpoint's name and the time of a decision, and the receiver calls Approx.Record.
func AppendKeys(dst []byte, keys []block.Key) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(keys)))
	for _, k := range keys {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(k))
	}
	return dst
}

// DecodeKeys decodes a list of AppendKeys from the start of b. It appends the keys to dst and
// returns the bytes after the list. Any input is safe: a count above MaxKeys, or beyond the end of
// b, is an error before any allocation, and dst is then returned unchanged.
func DecodeKeys(b []byte, dst []block.Key) (keys []block.Key, rest []byte, err error) {
	r := varint.Reader{B: b}
	n := r.Uint()
	if n > MaxKeys {
		r.Fail(ErrCodecLimit)
	}
	if !r.Has(n * 8) {
		return dst, nil, r.Err
	}
	for range n {
		dst = append(dst, block.Key(r.Fixed64()))
	}
	return dst, r.B, nil
}
