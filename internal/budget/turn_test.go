package budget

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestTurn: large inputs wait for each other, small ones for nobody, and who waits goes away
// with its client.
func TestTurn(t *testing.T) {
	b := New(1 << 30)
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan bool)
	turn := func() {
		ended <- b.Turn(t.Context(), heavy, func() { begun <- struct{}{}; <-end })
	}
	for range cap(b.turns) {
		go turn()
		<-begun
	}
	small := false
	if !b.Turn(t.Context(), heavy-1, func() { small = true }) || !small {
		t.Error("a small input waits")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the client went away"))
	if b.Turn(ctx, heavy, func() { t.Error("it ran") }) {
		t.Error("more turns than there are")
	}
	go turn()
	for range cap(b.turns) {
		end <- struct{}{}
		if !<-ended {
			t.Error("a turn did not come")
		}
	}
	<-begun
	end <- struct{}{}
	if !<-ended || len(b.turns) != 0 {
		t.Errorf("%d turns do not end", len(b.turns))
	}
	var none *Budget
	if !none.Turn(ctx, heavy, func() { small = false }) || small {
		t.Error("no budget waits")
	}
}

// TestTurnBreaks: a panic in a turn is one of who asked for it, who can recover from it, and
// the turn ends.
func TestTurnBreaks(t *testing.T) {
	b := New(1 << 30)
	for name, f := range map[string]func(){"a panic": func() { panic("spilt") }, "an end": runtime.Goexit} {
		func() {
			defer func() {
				v := recover()
				if text := fmt.Sprint(v); v == nil || name == "a panic" && (!strings.Contains(text, "spilt") || !strings.Contains(text, "turn_test.go")) {
					t.Errorf("%s: %v", name, v)
				}
			}()
			b.Turn(t.Context(), heavy, f)
		}()
	}
	if len(b.turns) != 0 {
		t.Error("the turns do not end")
	}
}

// TestLargeGiveWay: what is large runs on a thread that the system puts behind others, and
// what comes after it does not.
func TestLargeGiveWay(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("threads have no priorities of their own")
	}
	nice := func() (n int) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0) // 20 - nice
		if err != nil {
			t.Fatal(err)
		}
		return 20 - raw
	}
	b, own := New(1<<30), nice()
	var large, small int
	for range 20 {
		b.Turn(t.Context(), heavy, func() { large = nice() })
		b.Turn(t.Context(), heavy-1, func() { small = nice() })
		if want := min(own+4, 19); large < want || small != own || nice() != own {
			t.Fatalf("large inputs at %d, small ones at %d, others at %d, want %d or more, %d and %d", large, small, nice(), want, own, own)
		}
	}
}
