package server

import (
	"testing"
)

// TestSeedOfSecret: who has a secret has its seed; else each process begins with its own.
func TestSeedOfSecret(t *testing.T) {
	seed := func(secret string) string {
		s := &Server{o: Options{Secret: secret}}
		sum := s.seed()
		return string(sum[:])
	}
	if one, other := seed(""), seed(""); one == other {
		t.Error("two processes have one seed")
	}
	if a, again, b := seed("a"), seed("a"), seed("b"); a != again || a == b {
		t.Error("the seed does not follow the secret")
	}
}
