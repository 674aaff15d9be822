package filter

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// ChunkBytes is how many bytes of a prompt one block covers, and MaxChunks how many blocks of a
// prompt are used.
const (
	ChunkBytes = 256
	MaxChunks  = 4096
)

// MinSecret is the minimum length of a federation's secret, in bytes.
const MinSecret = 16

var errSecret = errors.New("filter: the secret has less than 16 bytes")

// Secret makes the keys of a federation. It is unrelated to a replica group's secret, from which
// the keys of the cluster's own index are made. It is immutable.
type Secret struct {
	base  []byte
	chain block.Hasher
	id    [8]byte
}

// NewSecret derives all keys from the secret shared by the federation.
func NewSecret(b []byte) (*Secret, error) {
	if len(b) < MinSecret {
		return nil, errSecret
	}
	s := &Secret{base: append([]byte(nil), b...)}
	s.chain = block.NewHasher(block.Seed(s.Derive("blocks")[:16]))
	copy(s.id[:], s.Derive("name"))
	return s, nil
}

// ID identifies a secret without revealing it.
func (s *Secret) ID() [8]byte { return s.id }

// Derive returns 32 bytes for a use. Parts are length-prefixed, so different uses never collide.
func (s *Secret) Derive(use string, parts ...string) []byte {
	m := hmac.New(sha256.New, s.base)
	for _, p := range append([]string{"grapevine federation", use}, parts...) {
		var n [4]byte
		binary.LittleEndian.PutUint32(n[:], uint32(len(p)))
		_, _ = m.Write(n[:])
		_, _ = m.Write([]byte(p))
	}
	return m.Sum(nil)
}

// Chain appends the keys of a prompt's full blocks to dst, at most MaxChunks. model is the
// request's model name after rewrites. prompt is the raw bytes that stand for the prompt in the
// body (request.Request.Chunks). Do not call it for a salted request, which has no keys. A request
// computes its keys once, for the hot set and for all filters.
func (s *Secret) Chain(model string, prompt []byte, dst []block.Key) []block.Key {
	if len(prompt) < ChunkBytes {
		return dst
	}
	key := s.chain.Root(block.Scope{Space: block.SpaceChunks, Model: model})
	for range min(len(prompt)/ChunkBytes, MaxChunks) {
		key = s.chain.Child(key, prompt[:ChunkBytes])
		dst = append(dst, key)
		prompt = prompt[ChunkBytes:]
	}
	return dst
}

// pairKey keys the filter that one cluster makes for another, for one rotation.
type pairKey struct{ a, b uint64 }

// pair returns the key of the filters for a way.
func (s *Secret) pair(w Way, rotation uint64) pairKey {
	var r [8]byte
	binary.LittleEndian.PutUint64(r[:], rotation)
	b := s.Derive("pair", w.Exporter, w.Importer, w.Namespace, w.Pool, string(r[:]))
	return pairKey{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]) | 1}
}
