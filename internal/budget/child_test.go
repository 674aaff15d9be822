//go:build linux

package budget

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// TestChildrenOutliveTurns: a program that is to die with this one is killed by the system
// when the thread that started it ends; no turn ends one.
func TestChildrenOutliveTurns(t *testing.T) {
	b := New(1 << 30)
	var children []*exec.Cmd
	var mu sync.Mutex
	child := func() {
		c := exec.Command("sleep", "60")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		children = append(children, c)
		mu.Unlock()
	}
	for range 20 {
		b.Turn(t.Context(), heavy, child) // on the very thread
		child()
		b.Turn(t.Context(), heavy, runtime.Gosched)
	}
	for i, c := range children {
		if err := c.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("child %d: %v", i, err)
		}
		state := make(chan error, 1)
		_ = c.Process.Signal(syscall.SIGTERM)
		go func() { state <- c.Wait() }()
		if err := <-state; c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("child %d ended before: %v", i, err)
		}
	}
}
