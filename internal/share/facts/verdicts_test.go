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

// judges are replicas that share verdicts on prompts. Their pools were filled in different orders,
// so endpoints have different numbers.
type judges struct {
	now   time.Time
	blame []*health.Prompts
	hints []*Hints
	pools []*endpoint.Pool
	sinks [][]cluster.FeedSink // by replica: sinks of stateVerdicts
}

const judged = "10.0.0.1:8000"

func newJudges(t *testing.T, n int) *judges {
	j := &judges{now: time.Unix(1_700_000_000, 0), sinks: make([][]cluster.FeedSink, n)}
	for i := range n {
		pool := endpoint.NewPool(endpoint.PoolOptions{})
		var specs []endpoint.Spec
		for k := range 4 {
			specs = append(specs, endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte((k+i)%4 + 1)}), 8000)})
			pool.Set(specs)
		}
		blame := new(health.Prompts)
		group := Group{Feed: func(name string, _ uint64, sink cluster.FeedSink) SendFunc {
			if name != stateVerdicts {
				return func([]byte) bool { return true }
			}
			j.sinks[i] = append(j.sinks[i], sink)
			return func(payload []byte) bool {
				for other, sinks := range j.sinks {
					if other == i {
						continue
					}
					for _, s := range sinks {
						if err := s.Deliver("r", 1, payload); err != nil {
							t.Error(err)
						}
					}
				}
				return true
			}
		}}
		h := NewHints(HintOptions{
			Group: group, Pool: pool, Sessions: sessions.New(0), Blame: blame,
			Record: func(block.EndpointID, []block.Key, int64) {}, Now: func() time.Time { return j.now },
		})
		blame.OnVerdict(h.VerdictReached)
		j.blame, j.hints, j.pools = append(j.blame, blame), append(j.hints, h), append(j.pools, pool)
	}
	return j
}

func (j *judges) fail(replica int, prompt uint64, address string) {
	j.now = j.now.Add(time.Second)
	j.blame[replica].Failed(prompt, int(j.pools[replica].Snapshot().Lookup(address).ID), j.now)
	j.hints[replica].Flush()
}

func (j *judges) suspected(prompt uint64) (by int) {
	for _, p := range j.blame {
		if p.Suspected(prompt, j.now) {
			by++
		}
	}
	return by
}

// A prompt that killed two engines is known to every replica, so that it does not kill one more at
// each replica that has not seen it.
func TestBlameIsShared(t *testing.T) {
	j := newJudges(t, 3)
	j.fail(0, 7, judged)
	j.fail(1, 7, judged) // the same engine, seen by another replica under another number
	if by := j.suspected(7); by != 0 {
		t.Errorf("%d replicas reject a prompt that failed at only one engine", by)
	}
	j.fail(2, 7, "10.0.0.2:8000")
	if by := j.suspected(7); by != 3 {
		t.Errorf("%d of 3 replicas reject a prompt that failed at two engines", by)
	}
	j.blame[1].Succeeded(7, j.now)
	j.hints[1].Flush()
	if by := j.suspected(7); by != 0 {
		t.Errorf("%d replicas reject a prompt that was answered since", by)
	}
	j.fail(0, 8, judged)
	earlier := j.now
	j.fail(0, 8, "10.0.0.3:8000")
	j.blame[2].Merge(health.Verdict{Prompt: 8, Answered: true, At: earlier})
	if by := j.suspected(8); by != 3 {
		t.Errorf("%d of 3 replicas reject a prompt whose last answer precedes its failures", by)
	}
	for _, address := range []string{judged, "10.0.0.3:8000"} {
		j.blame[0].Died(10, int(j.pools[0].Snapshot().Lookup(address).ID), j.now)
		j.hints[0].Flush()
		if by := j.suspected(10); by != 3 {
			t.Errorf("%d of 3 replicas suspect a prompt that was in flight at a death", by)
		}
	}
	for i, p := range j.blame {
		if !p.Killer(10, j.now) {
			t.Errorf("replica %d accepts a prompt that two engines died of", i)
		}
	}
	j.hints[0].VerdictReached(health.Verdict{Prompt: 9, Endpoint: ^1, At: j.now}) // in another cluster
	j.hints[0].Flush()
	if !j.blame[1].Empty() && j.blame[1].Suspected(9, j.now) {
		t.Error("failure at a remote endpoint was sent under a local number")
	}
}

// FuzzVerdict decodes arbitrary bytes as a verdict.
func FuzzVerdict(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 2, 'a', 'b'})
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		pool := endpoint.NewPool(endpoint.PoolOptions{})
		var p health.Prompts
		now := time.Unix(1_700_000_000, 0)
		_ = blameSink{&Hints{o: HintOptions{Pool: pool, Blame: &p, Now: func() time.Time { return now }}}}.Deliver("r", 1, b)
		if !p.Empty() {
			t.Fatal("failure at an unknown endpoint was stored")
		}
	})
}
