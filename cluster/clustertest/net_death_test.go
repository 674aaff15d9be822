//go:build linux

package clustertest_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestDeath kills a process. Its kernel closes the connections, so the others notice immediately.
// Another process takes over its name.
func TestDeath(t *testing.T) { r := group(t, 3); r.dies(func(h *handle) { h.kill() }) }

// TestPowerCut disconnects a machine. Its connections are not closed; there is only silence.
func TestPowerCut(t *testing.T) {
	r := group(t, 3)
	r.dies(func(h *handle) { r.unplug(h.addr); h.kill() })
}

// dies makes the third member die while engines write, and then restart.
func (r *rig) dies(how func(*handle)) {
	t := r.t
	victim, rest := r.members[2], r.members[:2]
	victim.tell(t, order{Do: "load", Value: "7"})
	testkit.Eventually(r.t, func() string { return r.load(victim, "7") })
	if victim.state(t).Reading == 0 {
		t.Fatal("the victim reads no source, so its death proves nothing")
	}
	r.churn(500 * time.Millisecond)
	how(victim)
	r.write(10)
	t.Logf("its load is gone after %v", testkit.Eventually(r.t, func() string { return r.load(victim, "") }))
	t.Logf("what it read is read by others, and exact, %v after that", testkit.Eventually(r.t, func() string { return r.knows(rest...) }))
	t.Logf("the others say so %v after that", testkit.Eventually(r.t, func() string { return r.lost(rest, victim) }))
	r.churn(500 * time.Millisecond)

	again := r.start("c", 3)
	took := testkit.Eventually(r.t, func() string { return r.agree(rest[0], rest[1], again) })
	t.Logf("another process under its name joined and equal after %v", took)
	if p := again.state(t).Phase; p != "settled" {
		t.Errorf("new member's phase is %s", p)
	}
	testkit.Eventually(r.t, func() string { return r.knows(rest...) })
}

// lost returns why members do not report victim as lost and the group as working, or "".
func (r *rig) lost(members []*handle, victim *handle) string {
	for _, h := range members {
		s := h.state(r.t)
		if s.Health.State != "joined" || !s.Health.OK || !strings.Contains(s.Health.Line, "1 lost") || !strings.HasSuffix(s.Health.Line, ": "+victim.name) {
			return fmt.Sprintf("%s says %q", h.name, s.Health.Line)
		}
	}
	return ""
}

// TestStopped stops a process with SIGSTOP. Its kernel keeps connections open and fills their
// buffers. The others continue without it. When it resumes, with old frames in its buffers, it
// becomes a member again, has the same content, and its load counts.
func TestStopped(t *testing.T) {
	r := group(t, 3)
	victim, rest := r.members[2], r.members[:2]
	victim.tell(t, order{Do: "load", Value: "7"})
	testkit.Eventually(t, func() string { return r.load(victim, "7") })
	if victim.state(t).Reading == 0 {
		t.Fatal("the victim reads no source, so stopping it proves nothing")
	}
	r.churn(500 * time.Millisecond)
	stop := func(stopped bool) {
		signal := syscall.SIGCONT
		if stopped {
			signal = syscall.SIGSTOP
		}
		if err := victim.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		victim.stopped = stopped
	}
	for _, long := range []bool{false, true} {
		stop(true)
		r.churn(300 * time.Millisecond)
		if long {
			t.Logf("its load is gone after %v", testkit.Eventually(t, func() string { return r.load(victim, "") }))
			t.Logf("what it read is read by others, and exact, %v after that", testkit.Eventually(t, func() string { return r.knows(rest...) }))
			t.Logf("the others say so %v after that", testkit.Eventually(t, func() string { return r.lost(rest, victim) }))
			r.churn(500 * time.Millisecond)
		}
		stop(false)
		r.write(10)
		t.Logf("it knows the same %v after it goes on", testkit.Eventually(t, func() string { return r.agree(r.members...) }))
		testkit.Eventually(t, func() string { return r.load(victim, "7") })
		r.churn(500 * time.Millisecond)
		testkit.Eventually(t, func() string { return r.agree(r.members...) })
	}
}

// TestLeave stops a member as SIGTERM does. No member reports a partition, and its sources are
// handed over before it exits.
func TestLeave(t *testing.T) {
	r := group(t, 3)
	r.churn(500 * time.Millisecond)
	c, rest := r.members[2], r.members[:2]
	c.tell(t, order{Do: "drain"})
	c.kill()
	t.Logf("the others are a group of two after %v", testkit.Eventually(r.t, func() string { return r.agree(rest...) }))
	r.churn(2 * time.Second)
	testkit.Eventually(r.t, func() string { return r.agree(rest...) })
}
