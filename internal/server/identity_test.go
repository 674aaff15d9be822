package server

import (
	"testing"
)

// TestSeedOfSecret: the seed is derived from the secret. Without a secret each process starts with
// a random seed.
func TestSeedOfSecret(t *testing.T) {
	seed := func(secret string) string {
		sum := firstSeed(secret)
		return string(sum[:])
	}
	if one, other := seed(""), seed(""); one == other {
		t.Error("two processes have one seed")
	}
	if a, again, b := seed("a"), seed("a"), seed("b"); a != again || a == b {
		t.Error("the seed does not follow the secret")
	}
}
