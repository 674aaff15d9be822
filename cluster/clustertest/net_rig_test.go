//go:build linux

package clustertest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-epp/grapevine/cluster/clustertest"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

var keys = [][]byte{bytes.Repeat([]byte{7}, 32)}

// rig is a group of members and the network between them.
type rig struct {
	*wire
	t       *testing.T
	sources []string
	members []*handle
	tcpOnly bool
	nats    []string // servers; none: gossip
	written uint64   // batches that each engine has written
}

// handle is a member's process.
type handle struct {
	name string
	addr netip.Addr
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	dead bool
	// stopped means that the process waits for SIGCONT.
	stopped bool
}

func newRig(t *testing.T) *rig {
	t.Helper()
	parts.Full(t)
	t.Parallel()
	return &rig{wire: newWire(t), t: t, sources: clustertest.Sources(12)}
}

// group starts members named a, b, and so on, on a healthy network.
func group(t *testing.T, n int) *rig {
	t.Helper()
	r := newRig(t)
	t.Logf("%d members joined and equal after %v", n, r.form(n))
	return r
}

// form starts n members and waits until they have joined and have the same content.
func (r *rig) form(n int) time.Duration {
	r.t.Helper()
	for i := range n {
		r.start(string(rune('a'+i)), i+1)
	}
	r.write(200)
	return testkit.Eventually(r.t, func() string { return r.agree(r.members...) })
}

func addrOf(host int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, byte(host)}) }

// start starts a member that joins all others by address.
func (r *rig) start(name string, host int) *handle {
	r.t.Helper()
	h := r.launch(name, host)
	var join []string
	for _, o := range r.members {
		if o.addr != h.addr {
			join = append(join, o.addr.String())
		}
	}
	h.tell(r.t, order{Do: "open", Name: name, Join: join, Label: "grapevine", Keys: keys, TCPOnly: r.tcpOnly, NATS: r.nats, Sources: r.sources})
	h.tell(r.t, order{Do: "write", Batches: r.written})
	r.members = append(r.members, h)
	return h
}

// launch starts a process and connects its device.
func (r *rig) launch(name string, host int) *handle {
	t := r.t
	t.Helper()
	h := &handle{name: name, addr: addrOf(host)}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	var out io.ReadCloser
	h.cmd, err = testkit.InNamespace(func() *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), memberEnv+"="+h.addr.String())
		c.ExtraFiles, c.Stderr = []*os.File{theirs}, os.Stderr
		h.in, _ = c.StdinPipe()
		out, _ = c.StdoutPipe()
		return c
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.kill() })
	h.out = bufio.NewReader(out)
	_ = theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	dev, err := taken(conn.(*net.UnixConn))
	if err != nil {
		t.Fatalf("member %s: %v", name, err)
	}
	r.plug(h.addr, dev)
	return h
}

// kill ends the process without notice.
func (h *handle) kill() {
	if !h.dead {
		h.dead = true
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	}
}

// tell sends a command to the member and returns its state afterwards.
func (h *handle) tell(t *testing.T, o order) state {
	t.Helper()
	s, err := h.try(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// try is tell for a command that may fail.
func (h *handle) try(o order) (s state, err error) {
	b, err := json.Marshal(o)
	if err != nil {
		return s, err
	}
	if _, err := h.in.Write(append(b, '\n')); err != nil {
		return s, fmt.Errorf("member %s is gone: %w", h.name, err)
	}
	line, err := h.out.ReadBytes('\n')
	if err != nil {
		return s, fmt.Errorf("member %s is gone: %w", h.name, err)
	}
	if err := json.Unmarshal(line, &s); err != nil {
		return s, err
	}
	if s.Error != "" {
		return s, fmt.Errorf("member %s: %s", h.name, s.Error)
	}
	return s, nil
}

func (h *handle) state(t *testing.T) state { t.Helper(); return h.tell(t, order{Do: "state"}) }

// write makes every engine write n more batches.
func (r *rig) write(n uint64) {
	r.t.Helper()
	r.written += n
	for _, h := range r.members {
		if !h.dead && !h.stopped {
			h.tell(r.t, order{Do: "write", Batches: r.written})
		}
	}
}

// churn makes engines write for a while.
func (r *rig) churn(lasts time.Duration) {
	r.t.Helper()
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r.write(5)
	}
}

// knows returns why members do not have everything that engines wrote, or "".
func (r *rig) knows(members ...*handle) string {
	for _, h := range members {
		s := h.state(r.t)
		for _, n := range r.sources {
			if why := s.Known[n].Missing(n, r.written); why != "" {
				return h.name + ": " + why
			}
		}
	}
	return ""
}

// agree returns why members have not joined exactly each other, or do not have everything that
// engines wrote, or "".
func (r *rig) agree(members ...*handle) string {
	for _, h := range members {
		if s := h.state(r.t); !s.Health.OK || s.Health.State != "joined" || len(s.Peers) != len(members)-1 {
			return fmt.Sprintf("%s says %q", h.name, s.Health.Line)
		}
	}
	return r.knows(members...)
}
