package blockhash

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// DefaultSeed is the text from which vLLM derives the root when
// PYTHONHASHSEED is not set.
const DefaultSeed = "vllm-none-hash"

// Extra holds the data other than tokens that separates blocks.
type Extra struct {
	LoRA string // adapter name, on every block; empty for none
	Salt string // cache salt, on the first block; empty for none
}

// Namer appends the names of the full blocks of tokens to dst. Implementations
// are safe for concurrent use.
type Namer interface {
	Append(dst []uint64, tokens []uint32, blockSize int, x Extra) []uint64
}

// Digest is a block's full hash.
type Digest [sha256.Size]byte

// Name returns the digest in the form used in events.
func (d *Digest) Name() uint64 { return binary.BigEndian.Uint64(d[len(d)-8:]) }

// SHA256CBOR is vLLM's algorithm of the same name.
type SHA256CBOR struct{ root Digest }

// NewSHA256CBOR returns the algorithm with the root that vLLM derives from
// seed, the value of PYTHONHASHSEED or DefaultSeed.
func NewSHA256CBOR(seed string) SHA256CBOR {
	return SHA256CBOR{sha256.Sum256(appendText(nil, seed))}
}

// Append implements Namer.
func (h SHA256CBOR) Append(dst []uint64, tokens []uint32, blockSize int, x Extra) []uint64 {
	h.each(tokens, blockSize, x, func(d *Digest) { dst = append(dst, d.Name()) })
	return dst
}

// each calls f with the digest of every full block, in order.
func (h SHA256CBOR) each(tokens []uint32, blockSize int, x Extra, f func(*Digest)) {
	parent := h.root
	buf := make([]byte, 0, 64+5*blockSize)
	for ; len(tokens) >= blockSize; tokens = tokens[blockSize:] {
		buf = appendBlock(buf[:0], &parent, tokens[:blockSize], x)
		parent = sha256.Sum256(buf)
		f(&parent)
		x.Salt = ""
	}
}

// CBOR major types (RFC 8949).
const (
	cborUint  = 0 << 5
	cborBytes = 2 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborNull  = 0xf6
)

func appendBlock(b []byte, parent *Digest, tokens []uint32, x Extra) []byte {
	b = appendHead(b, cborArray, 3)
	b = appendHead(b, cborBytes, uint64(len(parent)))
	b = append(b, parent[:]...)
	b = appendHead(b, cborArray, uint64(len(tokens)))
	for _, t := range tokens {
		b = appendHead(b, cborUint, uint64(t))
	}
	n := 0
	for _, s := range [...]string{x.LoRA, x.Salt} {
		if s != "" {
			n++
		}
	}
	if n == 0 {
		return append(b, cborNull)
	}
	b = appendHead(b, cborArray, uint64(n))
	for _, s := range [...]string{x.LoRA, x.Salt} {
		if s != "" {
			b = appendText(b, s)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(appendHead(b, cborText, uint64(len(s))), s...)
}

// appendHead writes a major type and its argument in the shortest form.
func appendHead(b []byte, major byte, v uint64) []byte {
	switch {
	case v < 24:
		return append(b, major|byte(v))
	case v < 1<<8:
		return append(b, major|24, byte(v))
	case v < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(v))
	default:
		return binary.BigEndian.AppendUint64(append(b, major|27), v)
	}
}

// Fast is a chained XXH64 of four little-endian bytes per token. The zero
// value is ready.
type Fast struct{}

// Append implements Namer.
func (Fast) Append(dst []uint64, tokens []uint32, blockSize int, x Extra) []uint64 {
	parent := xxhash.Sum64String(x.LoRA)*31 + xxhash.Sum64String(x.Salt)
	buf := make([]byte, 8+4*blockSize)
	for ; len(tokens) >= blockSize; tokens = tokens[blockSize:] {
		binary.LittleEndian.PutUint64(buf, parent)
		for i, t := range tokens[:blockSize] {
			binary.LittleEndian.PutUint32(buf[8+4*i:], t)
		}
		parent = xxhash.Sum64(buf)
		dst = append(dst, parent)
	}
	return dst
}
