package monitor

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// TestStandsStill: one of three replicas is paused for ten seconds, or gets so little CPU time that
// its steps and pages are late. When it continues, its requests are overdue, its pages unread and
// its probes late. No replica counts this against an engine or a model.
func TestStandsStill(t *testing.T) {
	const model = 7
	play := func(t *testing.T, still func(r *rig, calm func())) {
		r := newRig(t, 3, 4, func(i int, o *Options) {
			o.Health.Idle = 2 * time.Second
			o.Probe = func(context.Context, *endpoint.Endpoint) Result { return Hung }
			if i > 0 { // the running replicas find it healthy
				o.Probe = func(context.Context, *endpoint.Endpoint) Result { return Passed }
			}
		})
		calm := func() {
			t.Helper()
			for k := range 4 {
				if got := r.states(k); slices.ContainsFunc(got, func(s string) bool { return s != "healthy" }) {
					t.Fatalf("engine %d is %v", k, got)
				}
				for i, p := range r.replicas {
					if ep := p.pool.Snapshot().Endpoints[k]; ep.Tracker().AvoidedCount() > 0 {
						t.Fatalf("replica %d passes a model of engine %d over", i, k)
					}
				}
			}
		}
		moves := func(i int, ep *endpoint.Endpoint) { // the others' requests are answered
			if i > 0 || r.now.Nanosecond()%int(time.Second) == 0 {
				w := health.Watch{Traits: health.Traits{1}}
				ep.Tracker().Begin(&w, r.now, r.now.Add(time.Second))
				w.End(r.now, health.None)
			}
		}
		r.pass(5*time.Second, nil, moves)
		calm()
		var watches []*health.Watch
		for k := range 2 { // the other two have nothing to do
			for range 6 {
				w := &health.Watch{Traits: health.Traits{model}}
				r.replicas[0].pool.Snapshot().Endpoints[k].Tracker().Begin(w, r.now, r.now.Add(2*time.Second))
				watches = append(watches, w)
			}
		}
		still(r, calm)
		for i, w := range watches { // some are answered, for some the clients have gone
			if c := health.Left; i%2 == 0 {
				if w.Late(r.now) {
					c = health.Cut
				}
				w.End(r.now, c)
			} else {
				w.End(r.now, health.None)
			}
		}
		for range 60 {
			r.pass(tickEvery, nil, nil)
			calm()
		}
		for k := range 4 {
			if e := r.replicas[0].pool.Snapshot().Endpoints[k].Tracker().Evidence(r.now); e.Bad != [health.NumCauses]uint64{} {
				t.Errorf("engine %d is blamed: %v", k, e.Bad)
			}
		}
	}
	others := func(r *rig, d time.Duration) { // time passes only for the other replicas
		all := r.replicas
		r.replicas = all[1:]
		r.pass(d, nil, nil)
		r.replicas = all
	}
	t.Run("stopped", func(t *testing.T) {
		play(t, func(r *rig, calm func()) {
			others(r, 10*time.Second)
			p := r.replicas[0]
			p.Tick() // before any page or answer is read
			p.wg.Wait()
			calm()
		})
	})
	t.Run("starved", func(t *testing.T) {
		play(t, func(r *rig, calm func()) {
			for range 15 {
				others(r, 700*time.Millisecond)
				r.replicas[0].Tick()
				r.replicas[0].wg.Wait()
				calm()
			}
		})
	})
}

// TestProbeWhileStill: a probe whose answer may have arrived while the replica was paused is no
// evidence against the engine.
func TestProbeWhileStill(t *testing.T) {
	var r *rig
	var takes time.Duration
	r = newRig(t, 1, 1, func(_ int, o *Options) {
		o.Probe = func(context.Context, *endpoint.Endpoint) Result {
			r.now = r.now.Add(takes)
			return Hung
		}
	})
	r.pass(time.Second, nil, nil)
	p := r.replicas[0]
	s := p.sights[p.pool.Snapshot().Endpoints[0].Address]
	for _, c := range []struct {
		takes time.Duration
		want  uint64
	}{{5 * time.Second, 0}, {100 * time.Millisecond, 1}} {
		takes = c.takes
		p.probe(s, s.ep)
		p.mu.Lock()
		p.open()
		p.mu.Unlock()
		if got := s.missed + s.denied; got != c.want {
			t.Errorf("%d probes failed, of one that took %v, want %d", got, c.takes, c.want)
		}
		r.pass(3*time.Second, nil, nil)
	}
}

// TestPageRests: an idle engine with a slow page, which is therefore read rarely, does not count as
// silent.
func TestPageRests(t *testing.T) {
	r := newRig(t, 1, 1)
	for range 600 {
		r.now = r.now.Add(tickEvery)
		p, elapsed := r.replicas[0], r.now.Sub(time.Unix(1000, 0))
		if elapsed%(6*time.Second) == 0 {
			p.Read(p.pool.Snapshot().Endpoints[0], scrape.Reading{At: r.now, Answered: true, Page: &scrape.Page{}, Rest: 4 * time.Second})
		}
		p.Tick()
		if got := r.states(0); got[0] != "healthy" {
			t.Fatalf("after %v it is %v", elapsed, got)
		}
	}
}
