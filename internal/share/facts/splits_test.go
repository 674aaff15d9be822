package facts

import (
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// splitting are replicas that share the outcomes of pairs, with endpoints in different orders.
type splitting struct {
	hints []*Hints
	pools []*endpoint.Pool
	sinks []cluster.FeedSink
}

func newSplitting(t *testing.T, n int) *splitting {
	s := &splitting{sinks: make([]cluster.FeedSink, n)}
	for i := range n {
		pool := endpoint.NewPool(endpoint.PoolOptions{})
		var specs []endpoint.Spec
		for k := range 3 {
			specs = append(specs, endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte((k+i)%3 + 1)}), 8000)})
			pool.Set(specs)
		}
		group := Group{Feed: func(name string, _ uint64, sink cluster.FeedSink) SendFunc {
			if name != stateSplits {
				return func([]byte) bool { return true }
			}
			s.sinks[i] = sink
			return func(payload []byte) bool {
				for other, sink := range s.sinks {
					if other == i {
						continue
					}
					if err := sink.Deliver("r", 1, payload); err != nil {
						t.Error(err)
					}
				}
				return true
			}
		}}
		h := NewHints(HintOptions{
			Group: group, Pool: pool, Sessions: sessions.New(0), Blame: new(health.Prompts),
			Record: func(block.EndpointID, []block.Key, int64) {}, Now: time.Now,
		})
		pool.Splits().OnOutcome(h.SplitEnded)
		s.hints, s.pools = append(s.hints, h), append(s.pools, pool)
	}
	return s
}

const (
	splitFrom, splitTo, splitOther = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
)

func (s *splitting) learn(replica int, o endpoint.SplitOutcome) {
	pool := s.pools[replica].Snapshot()
	s.pools[replica].Splits().Learn(pool.Lookup(splitFrom), pool.Lookup(splitTo), o)
	s.hints[replica].Flush()
}

// off returns how many replicas do not use the pair from an endpoint.
func (s *splitting) off(from string) (n int) {
	for _, p := range s.pools {
		if pool := p.Snapshot(); !p.Splits().Works(pool.Lookup(from), pool.Lookup(splitTo)) {
			n++
		}
	}
	return n
}

// TestSplitsAreShared: three failures at a pair, each at another replica, turn it off at all of them, and
// one success turns it on at all.
func TestSplitsAreShared(t *testing.T) {
	s := newSplitting(t, 3)
	fails := endpoint.SplitOutcome{Fault: endpoint.PairTransfer}
	s.learn(0, fails)
	s.learn(1, fails)
	if n := s.off(splitFrom); n != 0 {
		t.Errorf("after two failures, the pair is off at %d replicas", n)
	}
	s.learn(2, fails)
	if n, others := s.off(splitFrom), s.off(splitOther); n != 3 || others != 0 {
		t.Errorf("after three failures, the pair is off at %d of 3 replicas, another one at %d", n, others)
	}
	for i, p := range s.pools { // counts are each replica's own
		if r := p.Splits().Records(); len(r) != 1 || r[0].Failed != 1 || r[0].Fault != endpoint.PairTransfer {
			t.Errorf("replica %d records %+v", i, r)
		}
	}
	s.learn(1, endpoint.SplitOutcome{})
	if n := s.off(splitFrom); n != 0 {
		t.Errorf("after a success, the pair is off at %d replicas", n)
	}
	s.learn(2, fails)
	if n := s.off(splitFrom); n != 3 {
		t.Errorf("after the next failure, the pair is off at %d of 3 replicas", n)
	}
}

// FuzzSplit decodes arbitrary bytes as an outcome.
func FuzzSplit(f *testing.F) {
	f.Add([]byte{1, 2, 'a', 'b', 1, 'c'})
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		pool := endpoint.NewPool(endpoint.PoolOptions{})
		_ = splitSink{&Hints{o: HintOptions{Pool: pool}}}.Deliver("r", 1, b)
		if len(pool.Splits().Records()) > 0 {
			t.Fatal("an outcome of unknown endpoints was stored")
		}
	})
}
