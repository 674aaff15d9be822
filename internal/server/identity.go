package server

import (
	"crypto/rand"
	"crypto/sha256"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
)

// firstSeed returns the initial seed of block keys: derived from the configured secret, or random
// until the group's seed is adopted.
func firstSeed(secret string) (seed block.Seed) {
	if secret != "" {
		return seedOf(secret)
	}
	_, _ = rand.Read(seed[:]) // never fails
	return seed
}

// secretPrint returns the value by which replicas compare their block key secrets. The hasher has the
// seed of the secret.
func secretPrint(secret string, hasher block.Hasher) uint64 {
	if secret == "" {
		return facts.GroupSecret
	}
	return uint64(hasher.Root(block.Scope{}))
}

// seedOf derives the seed of block keys from the group's secret.
func seedOf(secret string) (seed block.Seed) {
	sum := sha256.Sum256([]byte("grapevine block keys\x00" + secret))
	copy(seed[:], sum[:])
	return seed
}
