package extproc

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/internal/budget"
)

// begin opens a stream under gs.
func begin(t *testing.T, gs *guards) (context.Context, *guard) {
	t.Helper()
	ctx, err := gs.tap(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, guardOf(ctx)
}

// TestBodyTimeout waits for bodies that do not come: longer while nothing is
// held, and not at all once the request is placed.
func TestBodyTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := &guards{timeout: time.Minute}
		silent, a := begin(t, gs)
		slow, b := begin(t, gs)
		placed, c := begin(t, gs)
		b.hold(gs.timeout, 10*slowBody)
		b.hold(gs.timeout, 1000*slowBody) // further chunks buy no time
		c.settle()
		time.Sleep(70*time.Second + time.Millisecond)
		synctest.Wait()
		if !errors.Is(context.Cause(slow), errStarved) {
			t.Error("a body that is held waits for ever")
		}
		if silent.Err() != nil || placed.Err() != nil {
			t.Error("a stream that holds nothing, or is placed, was ended")
		}
		time.Sleep(patience * time.Minute)
		synctest.Wait()
		if !errors.Is(context.Cause(silent), errStarved) || placed.Err() != nil {
			t.Error("a silent stream stays for ever, or one that is placed was ended")
		}
		a.end()
		b.end()
		c.end()
		if placed.Err() == nil {
			t.Error("the context of an ended stream is not freed")
		}
		for i := range gs.shards {
			if gs.shards[i].n != 0 || gs.shards[i].first != nil {
				t.Error("ended streams are kept")
			}
		}
	})
}

// TestRelief has a process that is short of memory: the older half of what waits
// is ended, and nothing that is placed.
func TestRelief(t *testing.T) {
	shed := 0
	gs := &guards{timeout: time.Minute, budget: budget.New(100), shed: func(n int) { shed += n }}
	var all []context.Context
	for i := range 64 {
		ctx, g := begin(t, gs)
		all = append(all, ctx)
		if i < 16 {
			g.settle()
		}
	}
	runtime.GC() // live memory is known after the first collection
	gs.received(checkEvery)
	ended := 0
	for i, ctx := range all {
		if ctx.Err() == nil {
			continue
		}
		if ended++; i < 16 {
			t.Error("a placed stream was ended")
		}
	}
	if ended != shed || ended < 24 {
		t.Errorf("%d streams ended, %d counted, want the half of 48", ended, shed)
	}
}
