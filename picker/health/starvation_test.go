package health

import (
	"testing"
	"time"
)

// TestStarved: clients that leave before their requests are overdue are evidence of a stall, taken
// together. A single long wait, waits while other requests are answered, and long gaps are not.
func TestStarved(t *testing.T) {
	const patience = 3 * time.Second
	type world struct {
		Tracker
		now     time.Time
		clients [2]Watch
	}
	// step lets a tenth of a second pass, at whose end client i leaves, and another comes.
	step := func(w *world, i int) Evidence {
		w.now = w.now.Add(100 * time.Millisecond)
		if i >= 0 {
			w.clients[i].End(w.now, Left)
			w.Begin(&w.clients[i], w.now, w.now.Add(patience))
		}
		return w.Evidence(w.now)
	}
	// play has two clients that leave after .7 s each, and returns after how long the
	// engine was starved; every: something is done now and then.
	play := func(every int, do func(w *world)) time.Duration {
		w := &world{now: time.Unix(1000, 0)}
		w.Progress(w.now)
		w.Evidence(w.now)
		for i := range 300 {
			client := -1
			if i%7 == 0 || i%7 == 3 {
				client = i % 7 / 3
			}
			if e := step(w, client); e.Starved {
				if e.Overdue != 1 || e.Twice || e.Bad != [NumCauses]uint64{} {
					t.Errorf("%+v", e)
				}
				return w.now.Sub(time.Unix(1000, 0))
			}
			if every > 0 && i%every == every-1 {
				do(w)
			}
		}
		return 0
	}
	if got := play(0, nil); got < patience || got > patience+500*time.Millisecond {
		t.Errorf("it is starved after %v, of requests that may take %v", got, patience)
	}
	if got := play(25, func(w *world) { w.Progress(w.now) }); got != 0 {
		t.Errorf("something moves every 2.5 s, and it is starved after %v", got)
	}
	if got := play(10, func(w *world) {
		for i := range w.clients {
			w.clients[i].End(w.now, Left)
		}
		for range 300 { // no requests for half a minute
			w.now = w.now.Add(100 * time.Millisecond)
			if e := w.Evidence(w.now); e.Starved {
				t.Error("a starved endpoint gets no request")
			}
		}
		for i := range w.clients {
			w.Begin(&w.clients[i], w.now, w.now.Add(patience))
		}
	}); got != 0 {
		t.Errorf("starved after %v by a second of requests every half minute", got)
	}
	var long Watch
	if got := play(1, func(w *world) {
		if long.t == nil {
			w.Begin(&long, w.now, w.now.Add(20*time.Second))
		}
	}); got < 19*time.Second {
		t.Errorf("it is at work on a request that may take 20 s, and starved after %v", got)
	}
}
