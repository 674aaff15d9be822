//go:build hostile

package hostile

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// limit is the memory limit of the program.
const limit = 512 << 20

// comfortable is the memory that it should stay below, including socket buffers.
const comfortable = limit / 100 * 88

// cage is a process with the program that cannot use more than limit.
type cage struct {
	cmd     *exec.Cmd
	log     parts.Output
	exited  chan struct{}
	kind    string // mechanism of the limit
	group   string // folder of the cgroup, "" without one
	peak    atomic.Int64
	sockets atomic.Int64 // peak of socket buffers in the kernel
	admin   string
	extproc string
	health  string
}

// newGroup creates a memory cgroup and returns its folder, or "" if that is not possible.
func newGroup(t *testing.T) string {
	name := fmt.Sprintf("grapevine-hostile-%d", os.Getpid())
	for _, c := range []struct{ dir, limit, swap string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max", "memory.swap.max"},
	} {
		dir := filepath.Join(c.dir, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { testkit.PollUntil(func() bool { return os.Remove(dir) == nil }) })
		if os.WriteFile(filepath.Join(dir, c.limit), []byte(strconv.Itoa(limit)), 0o600) == nil {
			_ = os.WriteFile(filepath.Join(dir, socketsV1+".limit_in_bytes"), []byte(strconv.Itoa(limit)), 0o600) // enables their accounting
			return dir
		}
	}
	return ""
}

// lockUp starts a replica and waits until it is ready.
func lockUp(t *testing.T, program string, args ...string) *cage {
	t.Helper()
	c := &cage{admin: parts.FreeAddress(t), extproc: parts.FreeAddress(t), health: parts.FreeAddress(t)}
	args = append([]string{"serve", "--listen", c.extproc, "--admin", c.admin, "--health", c.health}, args...)
	c.start(t, program, args, "--memory", strconv.Itoa(limit))
	return c
}

// start starts the program, with additional arguments if no cgroup limits it, and waits until it is
// ready.
func (c *cage) start(t *testing.T, program string, args []string, more ...string) {
	t.Helper()
	c.exited, c.kind = make(chan struct{}), "memory cgroup"
	words := append(append(precedence(), program), args...)
	if c.group = newGroup(t); c.group != "" {
		c.cmd = exec.Command("sh", append([]string{"-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(c.group, "cgroup.procs")}, words...)...)
	} else {
		c.kind = "resident memory, sampled each 5 ms"
		c.cmd = exec.Command(words[0], append(words[1:], more...)...)
	}
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = c.cmd.Wait() // any exit is a failure, with any status
		close(c.exited)
	}()
	t.Cleanup(func() { c.end(t) })
	go c.sample()
	if !testkit.PollUntil(func() bool { return c.get("/readyz") == http.StatusOK }) {
		t.Fatalf("not ready; log:\n%s", c.log.String())
	}
}

// sample records the resident memory of the program, and kills it above the limit.
func (c *cage) sample() {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-c.exited:
			return
		case <-tick.C:
		}
		n, held := c.resident(), c.held()
		c.peak.Store(max(c.peak.Load(), n))
		c.sockets.Store(max(c.sockets.Load(), held))
		if n > limit {
			_ = c.cmd.Process.Kill()
		}
	}
}

// resident returns the program's resident memory in bytes.
func (c *cage) resident() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.cmd.Process.Pid))
	f := strings.Fields(string(b))
	if err != nil || len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(f[1], 10, 64)
	return n * int64(os.Getpagesize())
}

// socketsV1 is the prefix of files with the memory of sockets in cgroups v1, which do not include
// it in the group's memory.
const socketsV1 = "memory.kmem.tcp"

// held returns the bytes of the program's socket buffers in the kernel, or 0 without a cgroup.
func (c *cage) held() (n int64) {
	if c.group == "" {
		return 0
	}
	if b, err := os.ReadFile(filepath.Join(c.group, socketsV1+".usage_in_bytes")); err == nil {
		n, _ = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		return n
	}
	b, _ := os.ReadFile(filepath.Join(c.group, "memory.stat"))
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "sock "); ok {
			n, _ = strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		}
	}
	return n
}

// uncomfortable describes excessive memory since the last call of calm, or returns "".
func (c *cage) uncomfortable() string {
	if peak, sockets := c.peak.Load(), c.sockets.Load(); peak+sockets > comfortable {
		return fmt.Sprintf("the program took %d MiB, and its sockets %d", peak>>20, sockets>>20)
	}
	return ""
}

// calm resets the peaks.
func (c *cage) calm() {
	c.peak.Store(0)
	c.sockets.Store(0)
}

// files returns the number of the program's open files.
func (c *cage) files() int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.cmd.Process.Pid))
	return len(list)
}

func (c *cage) alive() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

func (c *cage) end(t *testing.T) {
	if !c.alive() {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
	case <-time.After(30 * time.Second):
		t.Error("the program does not end")
		_ = c.cmd.Process.Kill()
		<-c.exited
	}
}

var impatient = http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get returns the status of a page, or 0 without an answer.
func (c *cage) get(path string) int {
	resp, err := impatient.Get("http://" + c.admin + path)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// counters returns the program's counters by their names and labels.
func (c *cage) counters() map[string]float64 {
	resp, err := impatient.Get("http://" + c.admin + "/metrics")
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	out := map[string]float64{}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			out[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	return out
}
