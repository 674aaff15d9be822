package share

import (
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
)

// watched is one engine's streams as the driver sees them.
type watched struct {
	index *Index
	ranks []*source
	began time.Time
	at    []uint64
	w     work
}

func lookAt(ranks int) *watched {
	r := &watched{index: &Index{}, began: time.Now().Add(-time.Minute), at: make([]uint64, ranks)}
	all := map[string]*source{}
	for i := range ranks {
		s := &source{name: SourceName("e", uint16(i)), src: block.Source{Rank: uint16(i)}, plan: plan.NewStandalone()}
		s.shown.mode.Store(uint32(plan.Direct))
		r.ranks, all[s.name] = append(r.ranks, s), s
	}
	r.index.byName.Store(&all)
	r.index.order = inOrder(all)
	r.index.byEndpoint.Store(&map[block.EndpointID][]*source{0: r.ranks})
	return r
}

// look simulates one look of the driver.
func (r *watched) look(at time.Duration) (stalls time.Duration) {
	for i, s := range r.ranks {
		s.stall.look(r.began.Add(at), cluster.Position{Next: r.at[i]}, r.w)
	}
	for _, s := range r.ranks {
		s.plan.Advance(at, plan.Facts{Stalled: stalled(r.ranks)})
	}
	r.index.show()
	return stalled(r.ranks)
}

func (r *watched) sample(at time.Duration, runs bool) {
	r.w.at, r.w.runs = r.began.Add(at), runs
}

func (r *watched) age(at time.Duration) time.Duration {
	var age time.Duration
	for _, s := range r.ranks {
		age = max(age, s.shown.behindBy(r.began.Add(at)))
	}
	return age
}

// The content of a working engine shows its age after a second without events and is suspected
// after two. An event or an idle engine ends both.
func TestAge(t *testing.T) {
	const ms = time.Millisecond
	r := lookAt(1)
	for _, c := range []struct {
		what          string
		at            time.Duration
		moves         bool
		sampled       time.Duration // 0: no new sample
		runs          bool
		stalls, shows time.Duration
		suspect       bool
	}{
		{what: "at rest", at: 100 * ms, sampled: 50 * ms},
		{what: "still", at: 900 * ms, sampled: 900 * ms},
		{what: "the engine works and tells", at: 1000 * ms, moves: true, sampled: 1000 * ms, runs: true},
		{what: "nothing came since, for a moment", at: 1250 * ms},
		{what: "it may have been at work since the look before the log moved", at: 1900 * ms, shows: 1000 * ms},
		{what: "so it does", at: 2100 * ms, sampled: 2050 * ms, runs: true, stalls: 1100 * ms, shows: 1200 * ms},
		{what: "it works on", at: 2900 * ms, stalls: 1900 * ms, shows: 2000 * ms},
		{what: "now it is suspected", at: 3150 * ms, sampled: 3050 * ms, runs: true, stalls: 2150 * ms, shows: 2250 * ms, suspect: true},
		{what: "and goes on", at: 4150 * ms, stalls: 3150 * ms, shows: 3250 * ms, suspect: true},
		{what: "something came", at: 5000 * ms, moves: true},
		{what: "nothing again", at: 6500 * ms, sampled: 6400 * ms, runs: true, stalls: 1500 * ms, shows: 2350 * ms},
		{what: "it rests", at: 7250 * ms, sampled: 7200 * ms},
		{what: "it rests for long", at: 60 * time.Second, sampled: 59 * time.Second},
		{what: "and works again", at: 60500 * ms, sampled: 60400 * ms, runs: true, stalls: 100 * ms, shows: 1500 * ms},
	} {
		if c.moves {
			r.at[0]++
		}
		if c.sampled > 0 {
			r.sample(c.sampled, c.runs)
		}
		stalls := r.look(c.at)
		if got := r.age(c.at); stalls != c.stalls || got != c.shows || r.ranks[0].shown.stalled.Load() != c.suspect {
			t.Errorf("%s: stalled = %v, age = %v, suspect = %v; want %v, %v, %v", c.what, stalls, got, r.ranks[0].shown.stalled.Load(), c.stalls, c.shows, c.suspect)
		}
	}
}

// Some ranks of an engine may be idle while others work, and the gauges do not show which. If no
// rank sends events, all are suspected.
func TestRanksAtRest(t *testing.T) {
	r := lookAt(3)
	for at := time.Duration(0); at < 20*time.Second; at += 250 * time.Millisecond {
		r.sample(at, true)
		if at < 10*time.Second {
			r.at[1]++
		}
		stalls, age := r.look(at), r.age(at)
		switch {
		case at < 10*time.Second && (stalls > 0 || age > 0):
			t.Fatalf("at %v: stalled = %v, age = %v while a rank sends events", at, stalls, age)
		case at > 13*time.Second && (stalls < 2*time.Second || age < 3*time.Second || r.ranks[0].plan.Suspect() == 0):
			t.Fatalf("at %v: stalled = %v, age = %v while no rank sends events", at, stalls, age)
		}
	}
	want := "3 event streams are silent while their engines work, up to "
	if got := r.index.still(); len(got) < len(want) || got[:len(want)] != want {
		t.Errorf("%q", got)
	}
}

// Engines with large blocks send events less often.
func TestAgeOfLargeBlocks(t *testing.T) {
	r := lookAt(1)
	r.w.block = 4 * usualBlock
	for at := time.Duration(0); at < 20*time.Second; at += 500 * time.Millisecond {
		r.sample(at, true)
		stalls, age := r.look(at), r.age(at)
		if shows := at >= 4*time.Second; (age > 0) != shows || stalls > at/4 {
			t.Errorf("at %v: stalled = %v, age = %v", at, stalls, age)
		}
	}
}

// An engine without readable gauges counts as working while responses are in progress.
func TestWorkWithoutGauges(t *testing.T) {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:8000")}})
	ep, now := pool.Snapshot().Endpoints[0], time.Now()
	f := func(what string, want work) {
		t.Helper()
		if got := workOf(pool.LoadTracker(), ep, now); !got.at.Equal(want.at) || got.runs != want.runs || got.block != want.block {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	f("never read", work{at: now})
	ep.SetGauges(endpoint.Gauges{At: now.Add(-time.Second), Values: gauge.Values{Running: 2}, BlockSize: 64})
	f("read a second ago", work{at: now.Add(-time.Second), runs: true, block: 64})
	ep.SetGauges(endpoint.Gauges{At: now.Add(-5 * time.Second), Values: gauge.Values{Running: 2}, BlockSize: 64})
	f("nothing is under way", work{at: now, block: 64})
	pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: 3, Waiting: 3})
	f("all wait for their first token", work{at: now, block: 64})
	pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: 3, Waiting: 2})
	f("one is being answered", work{at: now, runs: true, block: 64})
}

// Cached prompts with short responses fill no block, so the engine owes no event, however long it
// works. A longer response fills one, and so do many that fill one each.
func TestWorkWithoutBlocks(t *testing.T) {
	for _, c := range []struct {
		what              string
		tokens, requests  uint64 // per quarter second
		running           int
		pages             time.Duration // the page is readable until then
		suspectedAfter    time.Duration // 0: never
		suspectedNotAfter time.Duration
	}{
		{what: "short answers", tokens: 10 * 16, requests: 10, running: 3},
		{what: "one at a time", tokens: 2, requests: 1, running: 1},
		{what: "prompts that fill a block each", tokens: 10 * 20, requests: 10, running: 3, suspectedAfter: 2 * time.Second, suspectedNotAfter: 3 * time.Second},
		{what: "a long answer", tokens: 8, running: 1, suspectedAfter: 2 * time.Second, suspectedNotAfter: 3500 * time.Millisecond},
		{what: "many slow ones", tokens: 25, running: 50, suspectedAfter: 2 * time.Second, suspectedNotAfter: 4 * time.Second},
		{what: "a page that comes no more", tokens: 10 * 16, requests: 10, running: 3, pages: 5 * time.Second, suspectedAfter: 7 * time.Second, suspectedNotAfter: 8 * time.Second},
	} {
		r := lookAt(1)
		r.w.block, r.w.count = 16, c.running
		done, since := endpoint.Progress{Known: true, Computed: 1000, Ended: 50}, time.Duration(-1)
		for at := time.Duration(0); at < time.Minute && since < 0; at += 250 * time.Millisecond {
			if at == 500*time.Millisecond {
				r.at[0]++
			}
			done.Computed, done.Ended = done.Computed+c.tokens, done.Ended+c.requests
			r.w.done = done
			if c.pages > 0 && at > c.pages {
				r.w.done = endpoint.Progress{}
			}
			r.sample(at, true)
			r.look(at)
			if c.suspectedAfter == 0 && c.requests > 0 && at > 2*time.Second && r.age(at) > 0 {
				t.Fatalf("%s: age = %v at %v", c.what, r.age(at), at)
			}
			if r.ranks[0].shown.stalled.Load() {
				since = at
			}
		}
		switch {
		case c.suspectedAfter == 0 && since >= 0:
			t.Errorf("%s: suspected after %v", c.what, since)
		case c.suspectedAfter > 0 && (since < c.suspectedAfter || since > c.suspectedNotAfter):
			t.Errorf("%s: suspected after %v, want %v to %v", c.what, since, c.suspectedAfter, c.suspectedNotAfter)
		}
	}
}
