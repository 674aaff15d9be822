package wire

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/internal/budget"
)

// begin opens a stream under gs.
func begin(t *testing.T, gs *Guards) (context.Context, *Guard) {
	t.Helper()
	ctx, err := gs.Tap(t.Context(), &tap.Info{FullMethodName: extprocv3.ExternalProcessor_Process_FullMethodName})
	if err != nil {
		t.Fatal(err)
	}
	return ctx, GuardOf(ctx)
}

// waiting returns the number of streams in the lists of gs.
func waiting(gs *Guards) (n int) {
	for i := range gs.shards {
		n += gs.shards[i].size()
	}
	return n
}

func (s *guardShard) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// TestGuardsAreRemoved: a health check has no guard, and neither an expired stream that never ran nor a
// silent one stays in the lists.
func TestGuardsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := &Guards{Timeout: time.Minute}
		live, end := context.WithCancel(t.Context())
		check, err := gs.Tap(live, &tap.Info{FullMethodName: healthpb.Health_Check_FullMethodName})
		if err != nil || GuardOf(check) != nil || waiting(gs) != 0 || gs.others.size() != 1 {
			t.Error("health check has a request guard")
		}
		end()
		synctest.Wait()
		if gs.others.size() != 0 {
			t.Error("ended health check is still tracked")
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := gs.Tap(brief, &tap.Info{FullMethodName: extprocv3.ExternalProcessor_Process_FullMethodName}); err != nil {
			t.Fatal(err)
		}
		begin(t, gs)
		_, g := begin(t, gs)
		g.Run()
		if n, begun := waiting(gs), gs.begun.Load(); n != 3 || begun != 2 {
			t.Errorf("%d streams wait and %d have not run, want 3 and 2", n, begun)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n, begun := waiting(gs), gs.begun.Load(); n != 2 || begun != 1 {
			t.Errorf("after the first one's deadline %d streams wait and %d have not run, want 2 and 1", n, begun)
		}
		time.Sleep(bodyWaitFactor * gs.Timeout)
		synctest.Wait()
		g.End()
		if n, begun := waiting(gs), gs.begun.Load(); n != 0 || begun != 0 {
			t.Errorf("at the end %d streams wait and %d have not run", n, begun)
		}
	})
}

// TestBodyTimeout: the time limit is longer before the first part of a body, and ends when the
// request is placed.
func TestBodyTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := &Guards{Timeout: time.Minute}
		silent, a := begin(t, gs)
		slow, b := begin(t, gs)
		placed, c := begin(t, gs)
		b.ShortenTimeout(gs.Timeout, 10*slowBody)
		b.ShortenTimeout(gs.Timeout, 1000*slowBody) // further chunks do not extend the limit
		c.Settle()
		time.Sleep(70*time.Second + time.Millisecond)
		synctest.Wait()
		if !errors.Is(context.Cause(slow), ErrStarved) {
			t.Error("incomplete body was not ended")
		}
		if silent.Err() != nil || placed.Err() != nil {
			t.Error("empty or placed stream was ended")
		}
		time.Sleep(bodyWaitFactor * time.Minute)
		synctest.Wait()
		if !errors.Is(context.Cause(silent), ErrStarved) || placed.Err() != nil {
			t.Error("silent stream was not ended, or placed stream was")
		}
		a.End()
		b.End()
		c.End()
		if placed.Err() == nil {
			t.Error("context of an ended stream was not canceled")
		}
		if waiting(gs) != 0 {
			t.Error("ended streams are still tracked")
		}
	})
}

// TestStreamsTakeMemory opens streams until memory runs out. First the older half of the waiting
// ones is ended. Rejections are counted, and each ended stream or health check releases its memory.
func TestStreamsTakeMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 64
		b := budget.New(room * streamMemory * 5) // a fifth is for streams
		shed := 0
		gs := &Guards{Timeout: time.Minute, Budget: b, Shed: func(n int) { shed += n }}
		check, done := context.WithCancel(t.Context())
		if _, err := gs.Tap(check, &tap.Info{FullMethodName: healthpb.Health_Watch_FullMethodName}); err != nil {
			t.Fatal(err)
		}
		var all []*Guard
		for range 3 * room {
			if ctx, err := gs.Tap(t.Context(), &tap.Info{FullMethodName: extprocv3.ExternalProcessor_Process_FullMethodName}); err == nil {
				all = append(all, GuardOf(ctx))
			} else if status.Code(err) != codes.ResourceExhausted {
				t.Fatal(err)
			}
			for i, g := range all { // as the stream's goroutine does when its context ends
				if i > 0 && !g.waiting {
					g.End()
				}
			}
		}
		if len(all) < room || len(all) > 2*room || shed < room/4 || shed > room {
			t.Errorf("%d of %d streams started and %d were ended, with room for %d", len(all), 3*room, shed, room)
		}
		if used := b.Used(budget.Streams); used > b.Share(budget.Streams) {
			t.Errorf("%d bytes reserved of %d", used, b.Share(budget.Streams))
		}
		for _, g := range all {
			g.End()
			g.End()
		}
		done()
		synctest.Wait()
		if used := b.Used(budget.Streams); used != 0 {
			t.Errorf("%d bytes still reserved", used)
		}
	})
}

// TestManyHealthWatches opens more health watches than allowed. The older half ends, and requests
// keep their memory.
func TestManyHealthWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := &Guards{Timeout: time.Minute, Budget: budget.New(64 * othersPart * streamMemory * 5), Shed: func(int) {}}
		var all []context.Context
		for range 1000 {
			ctx, err := gs.Tap(t.Context(), &tap.Info{FullMethodName: healthpb.Health_Watch_FullMethodName})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, ctx)
			synctest.Wait()
		}
		open := 0
		for _, ctx := range all {
			if ctx.Err() == nil {
				open++
			}
		}
		if used := gs.Budget.Used(budget.Streams); open < 30 || open > 64 || used != int64(open)*streamMemory || all[999].Err() != nil {
			t.Errorf("%d watches are open with %d bytes, want 32 to 64 of %d bytes each", open, used, streamMemory)
		}
	})
}

// TestReliefSparesTheYoung: among waiting and new streams, only the older half of the waiting ones
// is ended, on any shard, while there are waiting ones.
func TestReliefSparesTheYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shed := 0
		gs := &Guards{Timeout: time.Minute, Shed: func(n int) { shed += n }}
		var all []context.Context
		var guards []*Guard
		for i := range 20 {
			if i == 10 {
				time.Sleep(2 * usualWait)
			}
			ctx, g := begin(t, gs)
			all, guards = append(all, ctx), append(guards, g)
		}
		guards[0].Settle()
		for _, want := range []int{5, 7, 8, 9} { // of nine waiting streams
			gs.shed(true)
			if shed != want {
				t.Errorf("%d streams were ended, want %d", shed, want)
			}
			time.Sleep(shedEvery)
		}
		for i, ctx := range all {
			if ended := ctx.Err() != nil; ended != (i > 0 && i < 10) {
				t.Errorf("stream %d of 20: ended = %v", i, ended)
			}
		}
		gs.shed(false) // none of the waiting ones is left
		if time.Sleep(shedEvery); shed != 9 {
			t.Errorf("new streams were ended because of outdated memory figures")
		}
		gs.shed(true)
		if shed != 9+5 || all[10].Err() == nil || all[15].Err() != nil {
			t.Errorf("%d streams were ended, want the older half of ten more", shed)
		}
		for _, g := range guards {
			g.End()
		}
	})
}

// TestRelief: under memory pressure, the older half of the waiting streams is ended, and no placed
// one.
func TestRelief(t *testing.T) {
	shed := 0
	held := make([]byte, 16<<20) // of a limit of 10 MiB
	defer runtime.KeepAlive(held)
	gs := &Guards{Timeout: time.Minute, Budget: budget.New(10 << 20), Shed: func(n int) { shed += n }}
	var all []context.Context
	for i := range 64 {
		ctx, g := begin(t, gs)
		all = append(all, ctx)
		if i < 16 {
			g.Settle()
		}
	}
	runtime.GC() // live memory is known after the first collection
	gs.received(checkEvery)
	if shed != 0 {
		t.Error("new streams were ended before a collection")
	}
	for !gs.looked.Load() {
		runtime.Gosched()
	}
	gs.next.Store(0) // the minimum interval has passed
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
		t.Errorf("%d streams ended, %d counted, want half of 48", ended, shed)
	}
}

// TestNoReliefWithoutPressure: while memory suffices, received bytes end no stream.
func TestNoReliefWithoutPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := &Guards{Timeout: time.Minute, Budget: budget.New(1 << 40), Shed: func(n int) { t.Errorf("%d streams were ended without pressure", n) }}
		_, g := begin(t, gs)
		time.Sleep(2 * usualWait)
		gs.looked.Store(true)
		gs.received(checkEvery)
		if gs.looked.Load() {
			t.Error("memory that suffices again does not require a new collection before streams are ended")
		}
		g.End()
	})
}

// TestShedIsRare: soon after streams were ended, no more are.
func TestShedIsRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := &Guards{Shed: func(int) {}}
		if first, second := gs.shed(true), gs.shed(true); !first || second {
			t.Errorf("shed() = %t, then %t, want true, then false", first, second)
		}
		time.Sleep(shedEvery)
		if !gs.shed(true) {
			t.Error("shed() = false after the interval")
		}
	})
}

// TestGuardList: streams begin and end in any order; the list has those that wait, oldest first.
func TestGuardList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &guardShard{}
		var want []*Guard
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if at := rapid.IntRange(-3, len(want)-1).Draw(t, "stream"); at >= 0 {
				want[at].remove()
				want[at].remove() // has no effect
				want = slices.Delete(want, at, at+1)
			} else {
				g := &Guard{guards: &Guards{}, shard: s, waiting: true}
				g.push()
				want = append(want, g)
			}
			var forward, backward []*Guard
			for g := s.first; g != nil && len(forward) <= len(want); g = g.next {
				forward = append(forward, g)
			}
			for g := s.last; g != nil && len(backward) <= len(want); g = g.prev {
				backward = append(backward, g)
			}
			slices.Reverse(backward)
			if !slices.Equal(forward, want) || !slices.Equal(backward, want) || s.n != len(want) {
				t.Fatalf("list has %d streams forward, %d backward, and counts %d, want %d", len(forward), len(backward), s.n, len(want))
			}
		}
	})
}
