package watchdog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestStalledLoops: a loop that does not finish its work is reported within 3 s, until it
// continues. A loop that waits for hours is not reported. A probe that waits for a mutex is
// reported.
func TestStalledLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int32
		d := New(Options{Changed: func([]string) { changes.Add(1) }})
		busy, idle := d.Loop("busy"), d.Loop("idle")
		free := make(chan struct{}, 1)
		var held atomic.Bool
		d.Probe("mutex", 0, func() {
			if held.Load() {
				<-free
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go d.Run(ctx)
		expect := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := d.Stalled(); !slices.Equal(got, want) {
				t.Errorf("stalled %v, want %v", got, want)
			}
		}
		idle.Working()
		idle.Waiting()
		expect(time.Hour)
		busy.Working()
		expect(1900 * time.Millisecond)
		expect(900*time.Millisecond, "busy")
		busy.Working()
		expect(tickEvery)
		busy.Waiting()
		held.Store(true)
		expect(2600*time.Millisecond, "mutex")
		held.Store(false)
		free <- struct{}{}
		expect(time.Second)
		if n := changes.Load(); n != 4 {
			t.Errorf("%d changes reported, want 4", n)
		}
		var none *Loop
		none.Working()
		none.Waiting()
	})
}

// TestSlowLoop: a loop whose work takes a minute is not stalled while it reports progress, and is within
// 3 s of the last report. Progress of a loop that waits means nothing.
func TestSlowLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		slow, idle := d.Loop("slow"), d.Loop("idle")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go d.Run(ctx)
		slow.Working()
		for range 60 {
			time.Sleep(time.Second)
			slow.Progress()
			idle.Progress()
			if got := d.Stalled(); len(got) > 0 {
				t.Fatalf("stalled %v, want none", got)
			}
		}
		time.Sleep(3 * time.Second)
		if got := d.Stalled(); !slices.Equal(got, []string{"slow"}) {
			t.Errorf("stalled %v, want the loop without progress", got)
		}
		var none *Loop
		none.Progress()
	})
}

// TestStoppedProcess: a process without CPU time for a minute has no stalled loop afterwards, since
// the watchdog's own ticks stop as well.
func TestStoppedProcess(t *testing.T) {
	d := New(Options{})
	l := d.Loop("loop")
	for range 10 {
		d.step()
	}
	l.Working()
	// A minute passes in which nothing of the process runs: one tick is left in the ticker.
	d.step()
	if got := d.Stalled(); len(got) > 0 {
		t.Errorf("stalled %v after the process was stopped, want none", got)
	}
}

// TestWatchdogIsSafe reports from many goroutines while it looks.
func TestWatchdogIsSafe(t *testing.T) {
	d := New(Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			l := d.Loop("l")
			for range 1000 {
				l.Working()
				l.Waiting()
			}
		})
	}
	for range 100 {
		d.step()
	}
	wg.Wait()
}
