package ticks

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestNext(t *testing.T) {
	for _, every := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second} {
		for _, off := range []time.Duration{0, 1, time.Millisecond, 333 * time.Millisecond, time.Hour, -time.Second, -1} {
			now := began.Add(off)
			next := Next(now, every)
			if d := next.Sub(now); d <= 0 || d > every {
				t.Errorf("Next(start%+v, %v) is %v later, want at most the period", off, every, d)
			}
			if r := next.Sub(began) % every; r != 0 {
				t.Errorf("Next(start%+v, %v) is %v past an instant", off, every, r)
			}
		}
	}
	if now := time.Now(); Next(now, 0) != now || Last(now, 0) != now {
		t.Error("Next or Last without a period is not now")
	}
	at := began.Add(5 * time.Second)
	if got := Last(at, time.Second); got != at {
		t.Errorf("Last at an instant is %v earlier, want the instant", at.Sub(got))
	}
	if got := Last(at.Add(999*time.Millisecond), time.Second); got != at {
		t.Errorf("Last before the next instant is %v after the instant, want 0", got.Sub(at))
	}
}

// TestShared: loops with periods that divide each other wake the process only at the instants of the
// shortest period, whenever they begin.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		woken := map[time.Time]bool{}
		count := map[time.Duration]int{}
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for _, every := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond, time.Second} {
			time.Sleep(73 * time.Millisecond)
			wg.Go(func() {
				timer := time.NewTimer(Until(every))
				defer timer.Stop()
				for {
					select {
					case <-stop:
						return
					case <-timer.C:
					}
					mu.Lock()
					woken[time.Now()], count[every] = true, count[every]+1
					mu.Unlock()
					timer.Reset(Until(every))
				}
			})
		}
		time.Sleep(10 * time.Second)
		close(stop)
		wg.Wait()
		if n := len(woken); n > 42 {
			t.Errorf("%d wake-ups in 10 s, want 40", n)
		}
		for every, want := range map[time.Duration]int{250 * time.Millisecond: 40, 500 * time.Millisecond: 40, time.Second: 10} {
			if n := count[every]; n < want-3 || n > want+3 {
				t.Errorf("period %v: %d rounds in 10 s, want %d", every, n, want)
			}
		}
	})
}
