package sim

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// slow returns the conditions of a link with this round trip. Frames stay in order, so most take the
// longest time: twice the delay.
func slow(rtt time.Duration) Conditions { return Conditions{Delay: rtt / 4} }

// lossy adds losses. A lost frame is sent again after resend, as on a TCP connection.
func lossy(c Conditions, drop float64, resend time.Duration) Conditions {
	c.Drop, c.Resend = drop, resend
	return c
}

// onLinks starts three members that share the streams of busy engines. far, if not nil, is the link
// between the third member and the others.
func onLinks(seed uint64, near Conditions, far *Conditions) *World {
	w := New(Plan{
		Seed: seed, Members: 3, Sources: 12, Every: 100 * time.Millisecond, Share: group.SharePartitioned,
		Gauges: 150 * time.Millisecond, Net: near,
	})
	if far != nil {
		for i := range 2 {
			w.Net.Set(i, 2, far)
			w.Net.Set(2, i, far)
		}
	}
	w.StartAll()
	w.Run(15 * time.Second)
	return w
}

// lostPeers counts how often a member lost another.
func (w *World) lostPeers() (n uint64) {
	for _, m := range w.members {
		n += m.core.Stats().PeersLost
	}
	return n
}

// inspected is what members reported over some time.
type inspected struct {
	lost   uint64        // peers
	oldest time.Duration // age of the oldest content reported as exact
	exact  float64       // share of exact sources
}

// inspect runs w and looks at every source of every member.
func (w *World) inspect(lasts time.Duration) (r inspected) {
	before, looks, exact := w.lostPeers(), 0, 0
	for end := w.now + lasts; w.now < end; {
		w.Run(20 * time.Millisecond)
		for _, m := range w.members {
			for _, v := range m.log.Sources(nil) {
				looks++
				if v.Knowledge == knowledge.Exact && v.Reader != "" {
					exact++
					r.oldest = max(r.oldest, w.bySource[v.Name].age(v.Position))
				}
			}
		}
	}
	r.lost, r.exact = w.lostPeers()-before, float64(exact)/float64(looks)
	return r
}

// TestLinks: on links within the documented limits members keep each other, also while engines write.
// Content reported as exact is at most a second older than the delay of the link makes it.
func TestLinks(t *testing.T) {
	parts.Full(t)
	const seeds, lasts = 20, 30 * time.Second
	far := slow(600 * time.Millisecond)
	for _, tc := range []struct {
		name  string
		near  Conditions
		far   *Conditions
		lost  uint64  // peers of all seeds, at most; 5,400 seconds of each direction
		exact float64 // at least, of each seed
	}{
		{"1 ms", slow(time.Millisecond), nil, 0, 1},
		{"100 ms", slow(100 * time.Millisecond), nil, 0, 1},
		{"400 ms", slow(400 * time.Millisecond), nil, 0, 1},
		{"600 ms", slow(600 * time.Millisecond), nil, 0, .99},
		{"1 s", slow(time.Second), nil, 0, .95},
		{"two members near and one far", slow(time.Millisecond), &far, 0, .99},
		{"5% loss", lossy(slow(time.Millisecond), .05, 200*time.Millisecond), nil, 40, .95},
		{"20% loss", lossy(slow(time.Millisecond), .2, 200*time.Millisecond), nil, 5, .5},
		{"5% loss at 600 ms", lossy(slow(600*time.Millisecond), .05, 700*time.Millisecond), nil, 5, .5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := inspected{exact: 1}
			for seed := uint64(1); seed <= seeds; seed++ {
				w := onLinks(seed, tc.near, tc.far)
				for _, m := range w.members {
					if m.core.Phase() != group.Settled {
						t.Errorf("seed %d: member %s is %v after %v", seed, m.name, m.core.Phase(), w.now)
					}
				}
				r := w.inspect(lasts)
				all.lost, all.oldest, all.exact = all.lost+r.lost, max(all.oldest, r.oldest), min(all.exact, r.exact)
				w.Heal()
				w.converge()
				if f := w.Failures(); len(f) > 0 {
					t.Errorf("seed %d: %q", seed, f)
				}
			}
			t.Logf("%d peers lost; oldest exact content %v; at least %.1f%% exact", all.lost, all.oldest, 100*all.exact)
			if all.lost > tc.lost {
				t.Errorf("%d peers lost, want at most %d", all.lost, tc.lost)
			}
			delay := tc.near.Delay
			if tc.far != nil {
				delay = tc.far.Delay
			}
			if limit := time.Second + 2*delay; all.oldest > limit {
				t.Errorf("content reported as exact is %v old, want at most %v", all.oldest, limit)
			}
			if all.exact < tc.exact {
				t.Errorf("%.3f of the sources are exact, want %.3f", all.exact, tc.exact)
			}
		})
	}
}

// TestSilentPeer: a silent peer on a fast link counts as lost after the lease of Options, plus a tick.
// On a slow link it takes longer, but not longer than group.LeaseMost, and its sources are not exact
// in the meantime.
func TestSilentPeer(t *testing.T) {
	for _, tc := range []struct {
		rtt, least, most time.Duration
	}{
		{time.Millisecond, 0, time.Second},
		{600 * time.Millisecond, time.Second, group.LeaseMost + time.Second},
		{time.Second, time.Second, group.LeaseMost + time.Second},
	} {
		w := onLinks(1, slow(tc.rtt), nil)
		cut := w.now
		for i := range 2 { // without topology: connections stay open
			w.Net.Block(2, i, true)
		}
		up := func() bool {
			return w.members[0].core.Peers()[1].Up || w.members[1].core.Peers()[1].Up
		}
		var oldest time.Duration
		for up() && w.now < cut+10*time.Second {
			oldest = max(oldest, w.inspect(20*time.Millisecond).oldest)
		}
		took := w.now - cut
		t.Logf("round trip %v: lost after %v; oldest exact content %v", tc.rtt, took, oldest)
		if took < tc.least || took > tc.most {
			t.Errorf("round trip %v: silent peer lost after %v, want %v to %v", tc.rtt, took, tc.least, tc.most)
		}
		if limit := 1200*time.Millisecond + 2*slow(tc.rtt).Delay; oldest > limit {
			t.Errorf("round trip %v: content reported as exact is %v old, want at most %v", tc.rtt, oldest, limit)
		}
	}
}

// TestBeyondLimit: at a round trip of three seconds a member reports no content of other members as
// exact.
func TestBeyondLimit(t *testing.T) {
	w := onLinks(1, slow(3*time.Second), nil)
	w.Run(15 * time.Second)
	r := w.inspect(10 * time.Second)
	t.Logf("%d peers lost; %.1f%% exact, oldest %v", r.lost, 100*r.exact, r.oldest)
	if r.oldest > time.Second {
		t.Errorf("content reported as exact is %v old", r.oldest)
	}
	if r.exact == 0 {
		t.Error("no source is exact, not even those that a member reads itself")
	}
}
