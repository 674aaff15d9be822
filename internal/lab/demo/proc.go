package demo

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

// startLimit is when what starts, or joins, has hung.
const startLimit = 3 * time.Minute

// process is a child of the demo with its output in a file.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when the child has ended
}

// startProcess starts a child that is killed when this process dies.
func startProcess(dir, name, bin string, args ...string) (*process, error) {
	log := filepath.Join(dir, name+".log")
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &process{name: name, cmd: exec.Command(bin, args...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.SysProcAttr = childAttr()
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// run starts the child and waits for it on one locked thread: the kernel's
// death signal follows the thread that started the child, not the process.
func (p *process) run(started chan<- error) {
	defer close(p.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait()
	}
}

// kill ends the child at once and waits for it.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop asks the child to end, and kills it after grace.
func (p *process) stop(grace time.Duration) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.kill()
	}
}

// tail returns the last lines of the child's output, for error messages.
func (p *process) tail(lines int) string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	l := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(l[max(0, len(l)-lines):], "\n")
}

// waitHTTP polls url until it answers 200, the child ends, or ctx is done.
func (p *process) waitHTTP(ctx context.Context, url string) error {
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
		case <-p.done:
			return fmt.Errorf("%s ended while starting; its last lines:\n%s", p.name, p.tail(12))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready at %s: %w; its last lines:\n%s", p.name, url, ctx.Err(), p.tail(12))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// freePorts returns n TCP ports on 127.0.0.1 that are this process's to its end,
// so that a child that is started again gets them again.
func freePorts(n int) ([]int, error) {
	list, _, err := parts.ReservePorts(n)
	return list, err
}
