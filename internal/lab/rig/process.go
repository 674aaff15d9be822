package rig

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// StartLimit is the timeout for starting or joining.
const StartLimit = 3 * time.Minute

// Process is a child process whose output is written to a file.
type Process struct {
	Name string
	Cmd  *exec.Cmd
	log  string
	Done chan struct{} // closed when the child has ended
}

// Start starts a child. The kernel kills it when this process dies.
func Start(dir, name, bin string, args ...string) (*Process, error) {
	log := filepath.Join(dir, name+".log")
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &Process{Name: name, Cmd: exec.Command(bin, args...), log: log, Done: make(chan struct{})}
	p.Cmd.Stdout, p.Cmd.Stderr = f, f
	p.Cmd.SysProcAttr = childAttr()
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// run starts the child and waits until it ends, on one locked thread, because the kernel's death
// signal is tied to the thread that started the child.
func (p *Process) run(started chan<- error) {
	defer close(p.Done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.Cmd.Start()
	started <- err
	if err == nil {
		_ = p.Cmd.Wait()
	}
}

// Kill kills the child and waits until it has ended.
func (p *Process) Kill() {
	if p == nil {
		return
	}
	_ = p.Cmd.Process.Kill()
	<-p.Done
}

// Stop sends SIGTERM to the child, and SIGKILL after grace.
func (p *Process) Stop(grace time.Duration) {
	if p == nil {
		return
	}
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.Done:
	case <-time.After(grace):
		p.Kill()
	}
}

// Tail returns the last lines of the child's output for error messages.
func (p *Process) Tail(lines int) string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	l := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(l[max(0, len(l)-lines):], "\n")
}

// WaitHTTP polls url until it answers 200, the child ends, or ctx is done.
func (p *Process) WaitHTTP(ctx context.Context, url string) error {
	client := &http.Client{Timeout: 10 * time.Second}
	for {
		resp, err := client.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.Done:
			return fmt.Errorf("%s ended while starting; its last lines:\n%s", p.Name, p.Tail(12))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready at %s: %w; its last lines:\n%s", p.Name, url, ctx.Err(), p.Tail(12))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// FreePorts reserves n TCP ports on 127.0.0.1 until this process ends, so a restarted child can use
// the same port.
func FreePorts(n int) ([]int, error) {
	list, _, err := parts.ReservePorts(n)
	return list, err
}
