package wire

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

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

// waiting returns how many streams are in the lists of gs.
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

// TestGuardsForget begins what never comes to the end of a request: a health check has no
// guard, and neither a stream whose time was over before it ran nor one that says nothing
// stays in the lists.
func TestGuardsForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := &Guards{Timeout: time.Minute}
		live, end := context.WithCancel(t.Context())
		check, err := gs.Tap(live, &tap.Info{FullMethodName: healthpb.Health_Check_FullMethodName})
		if err != nil || GuardOf(check) != nil || waiting(gs) != 0 || gs.others.size() != 1 {
			t.Error("a health check is guarded as a request is")
		}
		end()
		synctest.Wait()
		if gs.others.size() != 0 {
			t.Error("a health check that ended is kept")
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
			t.Errorf("%d streams wait and %d have only begun, want 3 and 2", n, begun)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n, begun := waiting(gs), gs.begun.Load(); n != 2 || begun != 1 {
			t.Errorf("after the first one's deadline %d streams wait and %d have only begun, want 2 and 1", n, begun)
		}
		time.Sleep(patience * gs.Timeout)
		synctest.Wait()
		g.End()
		if n, begun := waiting(gs), gs.begun.Load(); n != 0 || begun != 0 {
			t.Errorf("in the end %d streams wait and %d have only begun", n, begun)
		}
	})
}

// TestBodyTimeout waits for bodies that do not come: longer while nothing is
// held, and not at all once the request is placed.
func TestBodyTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := &Guards{Timeout: time.Minute}
		silent, a := begin(t, gs)
		slow, b := begin(t, gs)
		placed, c := begin(t, gs)
		b.ShortenTimeout(gs.Timeout, 10*slowBody)
		b.ShortenTimeout(gs.Timeout, 1000*slowBody) // further chunks buy no time
		c.Settle()
		time.Sleep(70*time.Second + time.Millisecond)
		synctest.Wait()
		if !errors.Is(context.Cause(slow), ErrStarved) {
			t.Error("a body that is held waits for ever")
		}
		if silent.Err() != nil || placed.Err() != nil {
			t.Error("a stream that holds nothing, or is placed, was ended")
		}
		time.Sleep(patience * time.Minute)
		synctest.Wait()
		if !errors.Is(context.Cause(silent), ErrStarved) || placed.Err() != nil {
			t.Error("a silent stream stays for ever, or one that is placed was ended")
		}
		a.End()
		b.End()
		c.End()
		if placed.Err() == nil {
			t.Error("the context of an ended stream is not freed")
		}
		if waiting(gs) != 0 {
			t.Error("ended streams are kept")
		}
	})
}

// TestStreamsTakeMemory opens streams until there is no memory for more: the older half of
// those that wait is ended before, what is refused is counted, and the end of each stream,
// or of a health check, gives back what it took.
func TestStreamsTakeMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 64
		b := budget.New(room * streamMemory * 5) // a fifth of it is for streams
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
			t.Errorf("%d of %d streams began and %d were ended, with room for %d", len(all), 3*room, shed, room)
		}
		if used := b.Used(budget.Streams); used > b.Share(budget.Streams) {
			t.Errorf("%d bytes are taken of %d", used, b.Share(budget.Streams))
		}
		for _, g := range all {
			g.End()
			g.End()
		}
		done()
		synctest.Wait()
		if used := b.Used(budget.Streams); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
	})
}

// TestManyHealthWatches opens more watches of the health service than there may be: the
// older half ends, and requests keep their memory.
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
			t.Errorf("%d watches are open and take %d bytes, want 32 to 64 of %d", open, used, streamMemory)
		}
	})
}

// TestReliefSparesTheYoung has streams that wait and others that have just begun: the older
// half of those that wait is ended, however they are spread, and of the others none, while
// there are some that wait.
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
		for _, want := range []int{5, 7, 8, 9} { // of nine that wait
			gs.shed(true)
			if shed != want {
				t.Errorf("%d streams were ended, want %d", shed, want)
			}
			time.Sleep(shedEvery)
		}
		for i, ctx := range all {
			if ended := ctx.Err() != nil; ended != (i > 0 && i < 10) {
				t.Errorf("stream %d of 20: ended %v", i, ended)
			}
		}
		gs.shed(false) // none of those is left
		if time.Sleep(shedEvery); shed != 9 {
			t.Errorf("streams that have just begun were ended by what was alive long ago")
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

// TestRelief has a process that is short of memory: the older half of what waits
// is ended, and nothing that is placed.
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
		t.Error("streams that have just begun were ended before memory was collected")
	}
	for !gs.looked.Load() {
		runtime.Gosched()
	}
	gs.next.Store(0) // the time between two sheddings is over
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
