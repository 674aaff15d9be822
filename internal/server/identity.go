package server

import (
	"crypto/rand"
	"crypto/sha256"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
)

// seed returns the initial seed of block keys: derived from the configured secret, or random until
// the group's seed is adopted.
func (s *Server) seed() (seed block.Seed) {
	if s.o.Secret != "" {
		return seedOf(s.o.Secret)
	}
	_, _ = rand.Read(seed[:]) // never fails
	return seed
}

// secret returns the value by which replicas compare their block key secrets.
func (s *Server) secret() uint64 {
	if s.o.Secret == "" {
		return facts.GroupSecret
	}
	return uint64(s.hasher.Root(block.Scope{}))
}

// openSeeds starts the agreement on a seed within the group, unless a secret is configured.
func (s *Server) openSeeds(own block.Seed, group facts.Group) {
	if s.o.Secret != "" || !s.o.Cluster.enabled() {
		return
	}
	s.seeds = facts.NewSeeds(facts.SeedOptions{
		Own: own, Now: time.Now, Log: s.o.Log, Registry: s.registry,
		Settled: func() bool { return s.node.Phase() != cluster.Settling },
		Older:   func() bool { return s.node.GaugeAbsent(facts.StateSeed) },
		Use: func(seed block.Seed) {
			s.share.Rekey(func() uint64 {
				s.hasher.Reseed(seed)
				return uint64(s.hasher.Root(block.Scope{}))
			})
		},
	})
	s.seeds.Join(group)
}

// seedOf derives the seed of block keys from the group's secret.
func seedOf(secret string) (seed block.Seed) {
	sum := sha256.Sum256([]byte("grapevine block keys\x00" + secret))
	copy(seed[:], sum[:])
	return seed
}
