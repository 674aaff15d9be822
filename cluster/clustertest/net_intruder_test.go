//go:build linux

package clustertest_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// attack sends invalid data to both ports of each address: garbage packets and streams, plain HTTP
// instead of TLS, and silent connections.
func attack(targets []string) error {
	rng := rand.NewChaCha8([32]byte{1})
	garbage := make([]byte, 1<<20)
	_, _ = rng.Read(garbage)
	for _, target := range targets {
		udp, err := net.Dial("udp", target+":7946")
		if err != nil {
			return err
		}
		for i := range 50 {
			_, _ = udp.Write(garbage[i : 20+i*25])
		}
		_ = udp.Close()
		for _, port := range []string{":7946", ":7947"} {
			for _, b := range [][]byte{garbage, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), nil} {
				if err := shove(target+port, b); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// shove writes b to a new connection, as far as the other end accepts it.
func shove(addr string, b []byte) error {
	conn, err := net.DialTimeout("tcp", addr, 30*time.Second)
	if err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
	_, _ = conn.Write(b)
	_, _ = conn.Read(make([]byte, 1))
	return conn.Close()
}

// TestGarbage: garbage from a host that is not a member is counted and has no other effect.
func TestGarbage(t *testing.T) {
	r := group(t, 3)
	r.members[0].tell(t, order{Do: "load", Value: "7"})
	stranger := r.launch("x", 9)
	var targets []string
	for _, h := range r.members {
		targets = append(targets, h.addr.String())
	}
	// On a busy machine, members occasionally lose each other. Garbage would cause it every time.
	calm := false
	for try := 0; try < 10 && !calm; try++ {
		before := r.givenUp()
		stranger.tell(t, order{Do: "attack", Join: targets})
		calm = r.givenUp() == before
	}
	if !calm {
		t.Errorf("members lose each other whenever garbage arrives: %d", r.givenUp())
	}
	r.write(10)
	testkit.Eventually(r.t, func() string {
		for _, h := range r.members {
			if s := h.state(t); s.Refused["label"] == 0 || s.Refused["plaintext"] == 0 {
				return fmt.Sprintf("%s refused %v", h.name, s.Refused)
			}
		}
		return r.agree(r.members...) + r.load(r.members[0], "7")
	})
}

// TestReplay replays all gossip packets of a member, byte for byte, both while it is alive and
// after it died. No member accepts that it left, returned, or sent any of it.
func TestReplay(t *testing.T) {
	r := newRig(t)
	stop := r.record(func(way flow) bool { return way.udp })
	r.form(3)
	c, rest := r.members[2], r.members[:2]
	c.tell(t, order{Do: "load", Value: "7"})
	r.churn(2 * time.Second)
	packets := 0
	old := stop()
	replay := func() {
		for way, list := range old {
			for _, b := range list {
				r.wire.carry(way, bytes.Clone(b))
				packets++
			}
		}
	}
	replay()
	r.write(10)
	testkit.Eventually(r.t, func() string { return r.agree(r.members...) + r.load(c, "7") })

	r.unplug(c.addr)
	c.kill()
	r.write(10)
	testkit.Eventually(r.t, func() string { return r.lost(rest, c) })
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		replay()
		for _, h := range rest {
			if s := h.state(t); s.Peers[c.name] != "" || s.Loads[c.name] != "" {
				t.Fatalf("a replay restored the dead member: %+v", s)
			}
		}
	}
	testkit.Eventually(r.t, func() string { return r.lost(rest, c) })
	r.write(10)
	testkit.Eventually(r.t, func() string { return r.knows(rest...) })
	if packets < 100 {
		t.Errorf("only %d packets were replayed, too few for the test", packets)
	}
	t.Logf("%d packets replayed", packets)
}

// TestReplayToNewcomer replays gossip packets to a new process at a previously used address, which
// has no record of departed members. Dead members are not accepted, and an isolated replica keeps
// reporting that it is isolated.
func TestReplayToNewcomer(t *testing.T) {
	r := newRig(t)
	stop := r.record(func(way flow) bool { return way.udp })
	r.form(3)
	a, b, c := r.members[0], r.members[1], r.members[2]
	r.churn(2 * time.Second)
	old := stop()
	for _, h := range []*handle{b, c} {
		r.unplug(h.addr)
		h.kill()
	}
	r.members = []*handle{a}
	testkit.Eventually(r.t, func() string { // otherwise it sends their names to a new member
		if s := a.state(t); len(s.Peers) > 0 {
			return fmt.Sprintf("%s says %q", a.name, s.Health.Line)
		}
		return ""
	})
	d := r.start("d", 2)
	r.write(10)
	testkit.Eventually(r.t, func() string {
		for _, pair := range [][2]*handle{{a, d}, {d, a}} {
			if s := pair[0].state(t); len(s.Peers) != 1 || s.Peers[pair[1].name] != "up" {
				return fmt.Sprintf("%s says %q", pair[0].name, s.Health.Line)
			}
		}
		return r.knows(a, d)
	})
	// replayed runs check while packets are replayed.
	replayed := func(check func(h *handle, s state)) {
		t.Helper()
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			for way, list := range old {
				for _, p := range list {
					r.wire.carry(way, bytes.Clone(p))
				}
			}
			for _, h := range []*handle{a, d} {
				check(h, h.state(t))
			}
		}
	}
	replayed(func(h *handle, s state) {
		for _, dead := range []*handle{b, c} { // on a busy machine live members may miss each other
			if s.Peers[dead.name] != "" {
				t.Fatalf("%s lists dead members: %v", h.name, s.Peers)
			}
		}
	})
	r.obey(both(between([]*handle{a}, []*handle{d}, severed), between([]*handle{d}, []*handle{a}, severed)))
	testkit.Eventually(r.t, func() string { return r.cutOff([]*handle{d}, []*handle{a}) })
	replayed(func(h *handle, s state) {
		if h == d && s.Health.State != "partitioned" {
			t.Fatalf("%s is isolated and reports %q, peers %v", h.name, s.Health.Line, s.Peers)
		}
	})
}
