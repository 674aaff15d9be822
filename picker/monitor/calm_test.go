package monitor

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// TestCalm: a pool without requests is stepped twice a second. A request or an unanswered reading ends
// the calm at once, so that nothing is detected later than in a busy pool.
func TestCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := endpoint.NewPool(endpoint.PoolOptions{})
		m, err := Open(Options{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		pool.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:8000")}, {Addr: netip.MustParseAddrPort("10.0.0.2:8000")}})
		eps := pool.Snapshot().Endpoints
		last := func() time.Time {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.lastStep
		}
		// watch lets time pass in which pages are read once a second, and counts steps.
		watch := func(d time.Duration, silent bool) (steps int) {
			was := last()
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
				synctest.Wait()
				if at := last(); at != was {
					was, steps = at, steps+1
				}
				if time.Now().UnixMilli()%1000 < 5 {
					for i, ep := range eps {
						if i > 0 || !silent {
							m.Read(ep, scrape.Reading{At: time.Now(), Answered: true, Page: &scrape.Page{}})
						}
					}
				}
			}
			return steps
		}
		watch(5*time.Second, false)
		if n := watch(10*time.Second, false); n > 21 {
			t.Errorf("%d steps in 10 s without a request, want 20", n)
		}
		time.Sleep(120 * time.Millisecond) // some time before the next step
		begun := time.Now()
		var request endpoint.Ticket
		pool.LoadTracker().Open(&request, eps[1], endpoint.Work{Input: 100, New: 100}, time.Now())
		synctest.Wait()
		if at := last(); at.Before(begun) {
			t.Errorf("the request waits for the step %v later", at.Sub(begun))
		}
		var w health.Watch
		eps[1].Tracker().Begin(&w, time.Now(), time.Now().Add(time.Second))
		if n := watch(2*time.Second, false); n < 18 {
			t.Errorf("%d steps in 2 s with a request in flight, want 20", n)
		}
		w.End(time.Now(), health.None)
		watch(5*time.Second, false)

		// The first endpoint does not answer. Its state follows 2.5 s after its last page.
		watch(10*time.Second, false)
		answered := time.Now()
		m.Read(eps[0], scrape.Reading{At: answered, Answered: true, Page: &scrape.Page{}})
		for pool.Health().View(int(eps[0].ID)).State == health.Healthy && time.Since(answered) < 10*time.Second {
			watch(50*time.Millisecond, true)
		}
		if d := time.Since(answered); d > 2500*time.Millisecond+2*tickEvery {
			t.Errorf("a silent endpoint is a suspect after %v, want 2.5 s", d)
		}
		watch(5*time.Second, false)
		watch(30*time.Second, false)

		// A failed reading is judged at once.
		watch(10*time.Second, false)
		begun = time.Now()
		m.Read(eps[0], scrape.Reading{At: begun, Refused: true})
		synctest.Wait()
		if at := last(); at.Before(begun) {
			t.Error("a refused connection waits for the next step")
		}
	})
}

// TestStepsOfLargePools: the time between steps grows with their duration, up to a bound.
func TestStepsOfLargePools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(Options{Pool: endpoint.NewPool(endpoint.PoolOptions{})})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for took, most := range map[time.Duration]time.Duration{
			0: tickEvery, 5 * time.Millisecond: tickEvery, 15 * time.Millisecond: 2 * tickEvery, time.Second: tickMost,
		} {
			longest := time.Duration(0)
			for range 100 { // the next common instant may be near
				longest = max(longest, m.rest(true, took))
				time.Sleep(7 * time.Millisecond)
			}
			if longest > most+most/10 || longest < most*9/10 {
				t.Errorf("%v until the next step after one of %v, want at most %v", longest, took, most)
			}
		}
	})
}
