package health

import (
	"testing"
	"time"
)

// life is one start of an engine that restarts repeatedly.
type life struct {
	lost uint64        // requests that were in flight when it died
	back time.Duration // from its start until it got half of its requests again; 0: it did not
}

// lives plays an engine that is alternately down and up. If it drains, it loses no request: its
// requests end before it stops.
func lives(t *testing.T, seed uint64, n int, up, down time.Duration, drains bool) (list []life, w *world) {
	w = newWorld(seed)
	clear(w.faults)
	w.cut = false
	for _, r := range w.replicas {
		r.blind = -1
	}
	broken := func() (sum uint64) {
		for _, r := range w.replicas {
			sum += r.trackers[0].Evidence(w.now).Bad[Broken]
		}
		return sum
	}
	for range n {
		begun, back, was := w.now, time.Duration(0), broken()
		for w.now.Sub(begun) < up {
			w.tick()
			if back == 0 && w.replicas[0].set.View(0).Share >= Full/2 {
				back = w.now.Sub(begun)
			}
		}
		if drains { // the other endpoints get its requests
			for _, r := range w.replicas {
				for _, q := range r.flying {
					if q.ep == 0 {
						q.End(w.now, None)
						q.ends, q.ep = w.now, 1
					}
				}
			}
		}
		at := w.now.Sub(time.Unix(1000, 0))
		w.faults[0] = simFault{"refuse", at, at + down}
		for end := w.now.Add(down); w.now.Before(end); {
			w.tick()
		}
		w.faults[0] = simFault{}
		list = append(list, life{broken() - was, back})
		for id := 1; id < simEndpoints; id++ {
			if v := w.replicas[0].set.View(id); v.State == Out || v.State == Probing {
				t.Fatalf("seed %d: endpoint %d is %s, and nothing is wrong with it", seed, id, v.State)
			}
		}
	}
	return list, w
}

// TestRestartLoops: an engine that dies some tens of seconds after each slow start loses fewer
// requests with each incarnation.
func TestRestartLoops(t *testing.T) {
	first, last := uint64(0), uint64(0)
	for seed := range uint64(6) {
		up := time.Duration(10+4*seed) * time.Second
		list, w := lives(t, seed, 9, up, 45*time.Second, false)
		for _, l := range list[:2] {
			first += l.lost
		}
		for _, l := range list[7:] {
			last += l.lost
		}
		v := w.replicas[0].set.View(0)
		t.Logf("seed %d, up for %v: %v; %s", seed, up, list, v.Remedy())
		if v.Flaps == 0 {
			t.Errorf("seed %d: none of its returns is remembered not to have lasted", seed)
		}
	}
	if 2*last > first {
		t.Errorf("%d requests lost in the first two lives, %d in the last two", first, last)
	}
}

// TestRolls: an engine is stopped now and then, and refuses requests until that is noticed. It
// returns equally fast every time.
func TestRolls(t *testing.T) {
	for seed := range uint64(4) {
		list, w := lives(t, seed, 5, 150*time.Second, 20*time.Second, true)
		for i, l := range list[1:] {
			if l.back == 0 || l.back > 7*time.Second {
				t.Errorf("seed %d: half of the requests after %v in life %d", seed, l.back, i+1)
			}
		}
		if v := w.replicas[0].set.View(0); v.Flaps != 0 {
			t.Errorf("seed %d: %d returns did not last", seed, v.Flaps)
		}
	}
}

// TestAnswersBreakOff: an engine breaks off every answer in the middle. From the third second on
// almost no client fails, although most ends of its streams are not observed.
func TestAnswersBreakOff(t *testing.T) {
	late, all := 0, 0
	const lasts = 12 * time.Second
	for seed := range uint64(40) {
		w := newWorld(seed)
		clear(w.faults)
		w.cut, w.rate = false, 2.4/float64(len(w.replicas)) // 24 requests per second
		w.faults[0] = simFault{"cut", 2 * time.Second, 2*time.Second + lasts}
		for w.now.Sub(time.Unix(1000, 0)) < 2*time.Second+lasts {
			w.tick()
			for _, r := range w.replicas {
				if r.set.View(0).State != Healthy {
					r.trackers[0].WatchClosely(w.now)
				}
			}
		}
		for _, at := range w.cuts {
			if at.Sub(time.Unix(1000, 0)) >= 5*time.Second {
				late++
			}
		}
		all += int(float64(len(w.replicas)) * w.rate * float64((lasts-3*time.Second)/tick))
	}
	t.Logf("%d of about %d requests of the rest broke off", late, all)
	if late*200 > all {
		t.Errorf("%d of about %d requests after the third second broke off", late, all)
	}
}
