package facts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

const (
	// StateSeed is the state of each replica's seed for block keys.
	StateSeed = "seed"
	keySeed   = "seed"
	// GroupSecret represents a seed made by the group where secrets are compared.
	GroupSecret = 1
)

// seed is a seed made by one replica and adopted by others.
type seed struct {
	firm  bool   // used by a settled replica
	born  uint64 // ms, by its creator's clock
	value block.Seed
}

// before defines the order of seeds: all members of a group adopt the first. A seed of a replica
// that has not settled yields to one in use, regardless of clocks. If two groups merge, the older
// of their seeds wins.
func (s *seed) before(o *seed) bool {
	if s.firm != o.firm {
		return s.firm
	}
	return cmp.Or(cmp.Compare(s.born, o.born), bytes.Compare(s.value[:], o.value[:])) < 0
}

const seedBytes = 1 + 1 + 8 + 16

func (s *seed) append(b []byte) []byte {
	firm := byte(0)
	if s.firm {
		firm = 1
	}
	b = binary.LittleEndian.AppendUint64(append(b, StateVersion, firm), s.born)
	return append(b, s.value[:]...)
}

// readSeed decodes a seed. It ignores later bytes, which future versions may add.
func readSeed(b []byte) (s seed, err error) {
	if len(b) < seedBytes || b[0] != StateVersion || b[1] > 1 {
		return s, errWire
	}
	s.firm, s.born = b[1] == 1, binary.LittleEndian.Uint64(b[2:])
	copy(s.value[:], b[10:])
	return s, nil
}

// SeedOptions configure Seeds. All fields are required.
type SeedOptions struct {
	Own     block.Seed // made by this process
	Now     func() time.Time
	Settled func() bool // reports whether the replica has found its group or stopped looking
	// Older reports whether all reachable members state that they run a release without seeds. No
	// seed will arrive then, and the replica settles only after it has listed its sources, which
	// needs the seed.
	Older func() bool
	Use   func(s block.Seed) // switches all block keys to s
	Log   *slog.Logger
	// Registry receives the metrics.
	Registry prometheus.Registerer
}

// Seeds makes a group agree on the seed of block keys. One member makes it, and each new member
// adopts it. It is sent like all shared state, encrypted if the group has a key, and does not
// depend on the group's keys. Safe for concurrent use.
type Seeds struct {
	o    SeedOptions
	set  SetFunc
	wake chan struct{}
	has  atomic.Bool

	mu      sync.Mutex
	own     seed
	theirs  Origins[seed] // under keySeed
	changes prometheus.Counter
}

// NewSeeds returns Seeds with the process's own seed. See Join.
func NewSeeds(o SeedOptions) *Seeds {
	s := &Seeds{
		o: o, wake: make(chan struct{}, 1), own: seed{born: uint64(o.Now().UnixMilli()), value: o.Own},
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "grapevine_share_seed_changes_total", Help: "Times that this replica adopted another seed for block keys and rebuilt its index.",
		}),
	}
	o.Registry.MustRegister(s.changes)
	return s
}

// Join registers the seed with a group.
func (s *Seeds) Join(g Group) { s.set = g.Gauge(StateSeed, StateVersion, s) }

// Has reports whether this replica has its group's seed: a peer's was adopted or found no better,
// all peers run releases without seeds, or no peer answered in time.
func (s *Seeds) Has() bool { return s.has.Load() }

// seedLook is how often Run checks whether the replica has settled.
const seedLook = 50 * time.Millisecond

// Run adopts seeds until ctx ends.
func (s *Seeds) Run(ctx context.Context) {
	s.publish()
	tick := time.NewTicker(seedLook)
	defer tick.Stop()
	for {
		s.settle()
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-tick.C:
			if s.firm() {
				tick.Stop()
			}
		}
	}
}

func (s *Seeds) firm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own.firm
}

// settle adopts the best known seed.
func (s *Seeds) settle() {
	settled := s.o.Settled()
	s.mu.Lock()
	was, best := s.own, s.own
	for t := range s.theirs.Values(keySeed) {
		if t.before(&best) {
			best = t
		}
	}
	best.firm = best.firm || settled
	s.own = best
	heard := len(s.theirs.Of(keySeed)) > 0
	s.mu.Unlock()
	if best.value != was.value {
		if was.firm {
			s.o.Log.Warn("two groups with different seeds have merged: this replica adopts the older seed and rebuilds its index")
		} else {
			s.o.Log.Info("using the group's seed for block keys")
		}
		s.changes.Inc()
		s.o.Use(best.value)
	}
	if best != was {
		s.publish()
	}
	if heard || settled || s.o.Older() {
		s.has.Store(true)
	}
}

func (s *Seeds) publish() {
	s.mu.Lock()
	value := s.own.append(nil)
	s.mu.Unlock()
	if err := s.set(keySeed, value); err != nil {
		s.o.Log.Warn("seed not shared", "error", err)
	}
}

// Merge implements cluster.GaugeSink.
func (s *Seeds) Merge(origin string, _ uint64, key string, value []byte) error {
	if key != keySeed {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if value == nil {
		s.theirs.Delete(key, origin)
		return nil
	}
	t, err := readSeed(value)
	if err != nil {
		return err
	}
	s.theirs.Set(key, origin, t)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// Drop implements cluster.GaugeSink.
func (s *Seeds) Drop(origin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.theirs.Drop(origin)
}
