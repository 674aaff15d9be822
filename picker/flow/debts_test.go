package flow

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// users simulates clients that each send a new request as soon as the last is answered, at a random
// live replica.
func (w *world) users(id string, n int) {
	for range n {
		var ask func()
		ask = func() {
			r := w.replicas[w.rng.IntN(len(w.replicas))]
			for !r.alive {
				r = w.replicas[w.rng.IntN(len(w.replicas))]
			}
			w.ask(r, rules.Request{Flow: id}, func() { w.after(ms+w.rng.Int64N(10*ms), ask) })
		}
		w.after(w.rng.Int64N(100*ms), ask)
	}
}

// windows returns the mean permits held by each flow in each ten-second window from now to t.
// Windows start every quarter second.
func (w *world) windows(t int64) (list []map[string]float64) {
	const step, length = int64(time.Second / 4), 40
	var sums []map[string]float64
	for {
		now := map[string]float64{}
		for id, f := range w.byFlow {
			now[id] = f.area
		}
		if sums = append(sums, now); len(sums) > length {
			mean := map[string]float64{}
			for id, v := range now {
				mean[id] = (v - sums[len(sums)-1-length][id]) / 10
			}
			list = append(list, mean)
		}
		if w.now >= t {
			return list
		}
		w.until(w.now + step)
	}
}

// even checks that flows held equal parts in every window, within a tenth or one request per
// replica.
func (w *world) even(t *testing.T, what string, list []map[string]float64) {
	t.Helper()
	worst, at := 0.0, ""
	for _, mean := range list {
		fair := 0.0
		for _, v := range mean {
			fair += v / float64(len(mean))
		}
		allowed := max(.10*fair, float64(len(w.replicas))*w.mean/10)
		for id, v := range mean {
			if off := (v - fair) / fair; math.Abs(off) > math.Abs(worst) {
				worst, at = off, id
			}
			if math.Abs(v-fair) > allowed {
				t.Errorf("%s: %s held %.2f permits in ten seconds, want a share of %.2f", what, id, v, fair)
				return
			}
		}
	}
	t.Logf("%s: at most %+.1f%% off in %d windows (%s)", what, 100*worst, len(list), at)
}

// TestFleetPaysNoOldDebts: one tenant held all permits when two others arrive, and returns them
// over a service time. From then on each has a third in any ten seconds. Earlier imbalance is not
// repaid at the first tenant's cost, however long requests take.
func TestFleetPaysNoOldDebts(t *testing.T) {
	s := int64(time.Second)
	for _, mean := range []float64{.3, 2, 5} {
		for _, sigma := range []float64{.02, .8} {
			w := newWorld(1, 3, 48, mean, tenants)
			w.sigma = sigma
			w.users("large", 1000)
			w.until(20 * s)
			w.users("small", 20)
			w.users("middle", 200)
			w.until(20*s + int64(max(mean*1e9, 1e9)))
			w.even(t, fmt.Sprintf("requests of %g s, sigma %g", mean, sigma), w.windows(60*s))
			w.check(t)
		}
	}
}

// TestFleetIsFairAtAnyTime: tenants whose clients request 20, 200 and 2,000 of 48 permits hold a
// third each in any ten seconds after the first requests end. This holds even while a replica is
// killed and restarted.
func TestFleetIsFairAtAnyTime(t *testing.T) {
	s := int64(time.Second)
	for seed := range uint64(6) {
		w := newWorld(seed, 3, 48, 2, tenants)
		w.sigma = []float64{.02, .3}[seed%2]
		w.until(s)
		w.users("small", 20)
		w.users("middle", 200)
		w.users("large", 2000)
		w.until(w.now + 2*s)
		w.even(t, fmt.Sprint(seed, ": all live"), w.windows(w.now+18*s))
		w.kill(w.replicas[2])
		w.even(t, fmt.Sprint(seed, ": one is killed"), w.windows(w.now+18*s))
		w.start(w.replicas[2], tenants)
		w.even(t, fmt.Sprint(seed, ": it is back"), w.windows(w.now+18*s))
		if w.most > 52 {
			t.Errorf("seed %d: %d permits in flight, want at most 48", seed, w.most)
		}
		w.check(t)
	}
}
