package decode

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Lead bytes that are parsed inline.
const (
	mpNil    = 0xc0
	mpUint16 = 0xcd
	mpUint32 = 0xce
	mpUint64 = 0xcf
	mpInt64  = 0xd3
	mpArray2 = 0x92 // array of two elements

	mpFixArray = 0x90 // array of up to 15 elements
	mpFixStr   = 0xa0 // string of up to 31 bytes
)

// takeNil reports whether the next value is nil and skips it if so.
func takeNil(p []byte) ([]byte, bool) {
	if len(p) > 0 && p[0] == mpNil {
		return p[1:], true
	}
	return p, false
}

// arrayHeader reads an array header. Each element takes at least one byte, so impossible lengths
// are rejected.
func arrayHeader(p []byte) (int, []byte, error) {
	if len(p) > 16 && p[0]&0xf0 == mpFixArray {
		return int(p[0] & 0x0f), p[1:], nil
	}
	n, p, err := msgp.ReadArrayHeaderBytes(p)
	if err != nil {
		return 0, p, err
	}
	if uint64(n) > uint64(len(p)) {
		return 0, p, msgp.ErrShortBytes
	}
	return int(n), p, nil
}

func mapHeader(p []byte) (int, []byte, error) {
	n, p, err := msgp.ReadMapHeaderBytes(p)
	if err != nil {
		return 0, p, err
	}
	if 2*uint64(n) > uint64(len(p)) {
		return 0, p, msgp.ErrShortBytes
	}
	return int(n), p, nil
}

// readText reads a string, or bytes, or nil, without copying.
func readText(p []byte) (v, rest []byte, err error) {
	if len(p) > 0 && p[0]&0xe0 == mpFixStr {
		if n := 1 + int(p[0]&0x1f); n <= len(p) {
			return p[1:n:n], p[n:], nil
		}
	}
	if rest, ok := takeNil(p); ok {
		return nil, rest, nil
	}
	if msgp.NextType(p) == msgp.BinType {
		return msgp.ReadBytesZC(p)
	}
	return msgp.ReadStringZC(p)
}

// readInt reads an integer of any width, or nil.
func readInt(p []byte) (v int64, ok bool, rest []byte, err error) {
	if len(p) > 0 && p[0] < 0x80 {
		return int64(p[0]), true, p[1:], nil
	}
	if rest, ok := takeNil(p); ok {
		return 0, false, rest, nil
	}
	v, rest, err = msgp.ReadInt64Bytes(p)
	return v, true, rest, err
}

// readHash reads an engine hash and normalizes it to 64 bits: unsigned as is, signed by its bit
// pattern, bytes by their last eight, big-endian.
func readHash(p []byte) (block.EngineHash, []byte, error) {
	if len(p) >= 9 && (p[0] == mpUint64 || p[0] == mpInt64) {
		return block.EngineHash(binary.BigEndian.Uint64(p[1:])), p[9:], nil
	}
	switch t := msgp.NextType(p); t {
	case msgp.UintType:
		v, rest, err := msgp.ReadUint64Bytes(p)
		return block.EngineHash(v), rest, err
	case msgp.IntType:
		v, rest, err := msgp.ReadInt64Bytes(p)
		return block.EngineHash(v), rest, err
	case msgp.BinType:
		v, rest, err := msgp.ReadBytesZC(p)
		if err == nil && len(v) == 0 {
			err = fmt.Errorf("%w: empty hash", ErrMalformed)
		}
		return hashOfBytes(v), rest, err
	default:
		return 0, p, fmt.Errorf("%w: hash of type %s", ErrMalformed, t)
	}
}

func hashOfBytes(v []byte) block.EngineHash {
	if len(v) > 8 {
		v = v[len(v)-8:]
	}
	var h uint64
	for _, c := range v {
		h = h<<8 | uint64(c)
	}
	return block.EngineHash(h)
}

// appendTokens reads an array of token ids, or of EAGLE pairs whose first element is the block's
// token, and appends them to dst.
func appendTokens(dst []uint32, p []byte) ([]uint32, []byte, error) {
	n, p, err := arrayHeader(p)
	if err != nil {
		return dst, p, err
	}
	if len(dst)+n > maxTokens {
		return dst, p, ErrTooLarge
	}
	dst = slices.Grow(dst, n)
	for ; n > 0; n-- {
		// The common encodings are read here, the others by readToken.
		switch {
		case len(p) >= 5 && p[0] == mpUint32:
			dst, p = append(dst, binary.BigEndian.Uint32(p[1:])), p[5:]
			continue
		case len(p) >= 3 && p[0] == mpUint16:
			dst, p = append(dst, uint32(p[1])<<8|uint32(p[2])), p[3:]
			continue
		case len(p) >= 1 && p[0] < 0x80:
			dst, p = append(dst, uint32(p[0])), p[1:]
			continue
		}
		id, rest, ok := readToken(p)
		if !ok {
			if id, rest, ok = readPair(p); !ok {
				return dst, p, fmt.Errorf("%w: token id", ErrMalformed)
			}
		}
		dst, p = append(dst, id), rest
	}
	return dst, p, nil
}

// readPair reads an EAGLE pair and returns its first token.
func readPair(p []byte) (uint32, []byte, bool) {
	if len(p) == 0 || p[0] != mpArray2 {
		return 0, p, false
	}
	id, p, ok := readToken(p[1:])
	if !ok {
		return 0, p, false
	}
	_, p, ok = readToken(p)
	return id, p, ok
}

// readToken reads an integer that fits 32 bits without sign, in any encoding.
func readToken(p []byte) (uint32, []byte, bool) {
	if t := msgp.NextType(p); t != msgp.UintType && t != msgp.IntType {
		return 0, p, false
	}
	v, rest, err := msgp.ReadInt64Bytes(p)
	if err != nil || v < 0 || v > math.MaxUint32 {
		return 0, p, false
	}
	return uint32(v), rest, true
}

// skipValue returns the bytes after the next value. It counts instead of recursing, so nesting uses
// no stack.
func skipValue(p []byte) ([]byte, error) {
	if rest, ok := takeNil(p); ok {
		return rest, nil
	}
	for left := uint64(1); left > 0; left-- {
		switch msgp.NextType(p) {
		case msgp.ArrayType:
			n, rest, err := arrayHeader(p)
			if err != nil {
				return p, err
			}
			left += uint64(n)
			p = rest
		case msgp.MapType:
			n, rest, err := mapHeader(p)
			if err != nil {
				return p, err
			}
			left += 2 * uint64(n)
			p = rest
		default:
			rest, err := msgp.Skip(p)
			if err != nil {
				return p, err
			}
			p = rest
		}
	}
	return p, nil
}
