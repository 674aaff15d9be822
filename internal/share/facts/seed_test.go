package facts

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// TestSeedOrder: all members agree on the first seed. A seed in use precedes a new member's,
// independent of clocks.
func TestSeedOrder(t *testing.T) {
	one := rapid.Custom(func(t *rapid.T) seed {
		s := seed{firm: rapid.Bool().Draw(t, "firm"), born: rapid.Uint64Max(3).Draw(t, "born")}
		s.value[0] = rapid.ByteMax(2).Draw(t, "value")
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := one.Draw(t, "a"), one.Draw(t, "b"), one.Draw(t, "c")
		if a.before(&b) && b.before(&a) || a != b && !a.before(&b) && !b.before(&a) || a.before(&b) && b.before(&c) && !a.before(&c) {
			t.Errorf("seeds are not ordered: %v %v %v", a, b, c)
		}
		if again, err := readSeed(append(a.append(nil), "added later"...)); err != nil || again != a {
			t.Errorf("%v decodes as %v (%v)", a, again, err)
		}
	})
	if used, early := (seed{firm: true, born: 9}), (seed{born: 1}); early.before(&used) {
		t.Error("new member with a slow clock replaces the seed of its group")
	}
}

// TestSeedsConverge: members that receive each other's seeds late, in parts and in any order end up
// with one seed, the first in the group. No member considers a seed its group's before it received
// one or settled.
func TestSeedsConverge(t *testing.T) {
	for n := range 60 {
		synctest.Test(t, func(t *testing.T) { converge(t, n) })
	}
}

type seeder struct {
	*Seeds
	id      string
	used    block.Seed
	settled atomic.Bool
	older   atomic.Bool
	sink    cluster.GaugeSink
	said    atomic.Value // []byte
}

// last returns the last value sent.
func (s *seeder) last() []byte {
	b, _ := s.said.Load().([]byte)
	return b
}

func converge(t *testing.T, n int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	members := make([]*seeder, 2+n%4)
	for i := range members {
		m := &seeder{id: fmt.Sprint(i)}
		m.used[0] = byte(i*7+n) % 5
		skew := time.Duration((i*13+n*5)%21-10) * time.Minute
		m.Seeds = NewSeeds(SeedOptions{
			Own: m.used, Now: func() time.Time { return time.Now().Add(skew) }, Settled: func() bool { return m.settled.Load() }, Older: func() bool { return m.older.Load() },
			Use: func(s block.Seed) { m.used = s }, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		})
		m.Join(Group{Gauge: func(_ string, _ uint64, sink cluster.GaugeSink) SetFunc {
			m.sink = sink
			return func(_ string, value []byte) error {
				m.said.Store(bytes.Clone(value))
				return nil
			}
		}})
		members[i] = m
		go m.Run(ctx)
		synctest.Wait()
		if m.Has() {
			t.Fatal("Has() = true before a seed was received")
		}
		if (i+n)%3 == 0 { // no peer in time
			m.settled.Store(true)
		}
		time.Sleep(100 * time.Millisecond)
		if synctest.Wait(); m.Has() != m.settled.Load() {
			t.Fatalf("Has() = %v with settled = %v", m.Has(), m.settled.Load())
		}
	}
	first := members[0].own
	for _, m := range members[1:] {
		if m.own.before(&first) {
			first = m.own
		}
	}
	for round := range len(members) { // a different peer in each round
		for i, m := range members {
			from := members[(i+round+n)%len(members)]
			if from != m {
				_ = m.sink.Merge(from.id, 1, keySeed, from.last())
			}
		}
		synctest.Wait()
	}
	for _, m := range members {
		for _, from := range members {
			if from != m {
				_ = m.sink.Merge(from.id, 1, keySeed, from.last())
			}
		}
		synctest.Wait()
	}
	for _, m := range members {
		for _, from := range members {
			if from != m {
				_ = m.sink.Merge(from.id, 1, keySeed, from.last())
			}
		}
	}
	synctest.Wait()
	for _, m := range members {
		if m.used != first.value || !m.Has() {
			t.Errorf("%d: member %s uses %v, want %v", n, m.id, m.used[0], first.value[0])
		}
	}
}

func FuzzSeed(f *testing.F) {
	f.Add((&seed{firm: true, born: 7, value: block.Seed{1}}).append(nil))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		s, err := readSeed(b)
		if err == nil && !bytes.Equal(s.append(nil), b[:seedBytes]) {
			t.Errorf("%x decodes as %v", b, s)
		}
	})
}

// TestSeedAmongOlderReleases: a replica whose reachable members all run releases without seeds has
// its seed at once. Waiting to settle would never end before its time limit: a replica settles only
// after it has listed its sources, which needs the seed.
func TestSeedAmongOlderReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older := false
		var mu sync.Mutex
		s := NewSeeds(SeedOptions{
			Own: block.Seed{1}, Now: time.Now, Settled: func() bool { return false }, Use: func(block.Seed) { t.Error("the seed changed") },
			Older: func() bool { mu.Lock(); defer mu.Unlock(); return older },
			Log:   slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		})
		s.Join(Group{Gauge: func(string, uint64, cluster.GaugeSink) SetFunc { return func(string, []byte) error { return nil } }})
		go s.Run(t.Context())
		time.Sleep(time.Second)
		if s.Has() {
			t.Error("Has() = true before any member has listed its states")
		}
		mu.Lock()
		older = true
		mu.Unlock()
		time.Sleep(2 * seedLook)
		if !s.Has() {
			t.Error("Has() = false among members without seeds")
		}
	})
}
