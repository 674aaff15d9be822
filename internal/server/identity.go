package server

import (
	"crypto/rand"
	"crypto/sha256"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
)

// seed returns the seed of block keys that this process begins with: of the secret of
// the options where there is one, else one that only this process knows, until it takes
// over its group's.
func (s *Server) seed() (seed block.Seed) {
	if s.o.Secret != "" {
		return seedOf(s.o.Secret)
	}
	_, _ = rand.Read(seed[:]) // never fails
	return seed
}

// secret is what is compared with other replicas of how block keys are seeded.
func (s *Server) secret() uint64 {
	if s.o.Secret == "" {
		return facts.GroupSecret
	}
	return uint64(s.hasher.Root(block.Scope{}))
}

// openSeeds has this replica and its group agree on a seed, unless a secret says it.
func (s *Server) openSeeds(own block.Seed, group facts.Group) {
	if s.o.Secret != "" || !s.o.Cluster.enabled() {
		return
	}
	s.seeds = facts.NewSeeds(facts.SeedOptions{
		Own: own, Now: time.Now, Log: s.o.Log, Registry: s.registry,
		Settled: func() bool { return s.node.Phase() != cluster.Settling },
		Use: func(seed block.Seed) {
			s.share.Rekey(func() uint64 {
				s.hasher.Reseed(seed)
				return uint64(s.hasher.Root(block.Scope{}))
			})
		},
	})
	s.seeds.Join(group)
}

// seedOf turns the group's secret into the seed of block keys.
func seedOf(secret string) (seed block.Seed) {
	sum := sha256.Sum256([]byte("grapevine block keys\x00" + secret))
	copy(seed[:], sum[:])
	return seed
}
