//go:build linux

package clustertest_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// exactLag is the maximum age of content that a member reports as exact. Over NATS with a fifth of the packets
// lost, one of nine runs exceeded it, so that test allows lossyLag.
const (
	exactLag = time.Second
	lossyLag = 3 * time.Second
)

// oracle records when the engines wrote their batches. Members cannot read it.
type oracle struct {
	r    *rig
	at   []time.Time // of each batch, once all members could read it
	base uint64      // number of the first batch in at
	seen [2]int      // answers that were exact: right, older than a tenth of a second
	not  int         // answers that were not
	age  time.Duration
	who  string
}

func (r *rig) oracle() *oracle { return &oracle{r: r, base: r.written} }

// write makes every engine write a few batches.
func (o *oracle) write() {
	const batches = 3
	o.r.write(batches)
	for range batches {
		o.at = append(o.at, time.Now())
	}
}

// look compares the content of every running member with the batches of the engines.
func (o *oracle) look() {
	for _, h := range o.r.members {
		if h.dead || h.stopped {
			continue
		}
		before := time.Now()
		s := h.state(o.r.t)
		for _, n := range o.r.sources {
			if !s.Exact[n] {
				o.not++
				continue
			}
			age := time.Duration(0)
			if next := s.Known[n].At.Next; next >= o.base && next < o.base+uint64(len(o.at)) {
				age = max(before.Sub(o.at[next-o.base]), 0)
			}
			if o.seen[0]++; age > 100*time.Millisecond {
				o.seen[1]++
			}
			if age > o.age {
				o.age, o.who = age, fmt.Sprintf("%s of %s, %s", h.name, n, s.Health.Line)
			}
		}
	}
}

// watch repeats write and look for a while.
func (o *oracle) watch(lasts time.Duration) {
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		o.write()
		o.look()
	}
}

// check fails the test if exact content was older than limit, or if no content was exact.
func (o *oracle) check(t *testing.T, limit time.Duration) {
	t.Helper()
	all := o.seen[0] + o.not
	t.Logf("%d answers, %.1f%% exact; of these %d older than 100 ms, the oldest %v (%s)", all, 100*float64(o.seen[0])/float64(max(all, 1)), o.seen[1], o.age.Round(time.Millisecond), o.who)
	if o.age > limit {
		t.Errorf("content reported as exact is %v old, want at most %v: %s", o.age, limit, o.who)
	}
	if o.seen[0] == 0 {
		t.Error("no answer is exact")
	}
}

// single lists single faults of the network or of a member. The returned function ends the fault.
var single = []struct {
	name  string
	fault func(r *rig) (end func())
}{
	{"none", func(*rig) func() { return func() {} }},
	{"5% loss", on(func(*rig) rule { return everywhere(fault{loss: .05}) })},
	{"20% loss", on(func(*rig) rule { return everywhere(fault{loss: .2}) })},
	{"600 ms round trip", on(func(*rig) rule { return everywhere(fault{delay: 300 * time.Millisecond}) })},
	{"20% loss at 100 ms round trip", on(func(*rig) rule { return everywhere(fault{loss: .2, delay: 50 * time.Millisecond}) })},
	{"one way cut", on(func(r *rig) rule { return between(r.members[:1], r.members[1:2], severed) })},
	{"silent link", on(func(r *rig) rule {
		return both(between(r.members[:1], r.members[1:2], severed), between(r.members[1:2], r.members[:1], severed))
	})},
	{"one member cut off", on(func(r *rig) rule { return around(r.members[2].addr, severed) })},
	{"SIGSTOP", func(r *rig) func() {
		h := r.members[2]
		pause := func(s syscall.Signal) {
			if err := h.cmd.Process.Signal(s); err != nil {
				r.t.Fatal(err)
			}
			h.stopped = s == syscall.SIGSTOP
		}
		pause(syscall.SIGSTOP)
		return func() { pause(syscall.SIGCONT); h.tell(r.t, order{Do: "write", Batches: r.written}) }
	}},
}

// on applies a rule to the network.
func on(f func(*rig) rule) func(*rig) func() {
	return func(r *rig) func() {
		r.obey(f(r))
		return func() { r.obey(healthy) }
	}
}

// TestExactUnderFaults: during and after a single fault, content that a member reports as exact is at most
// exactLag behind the engines.
func TestExactUnderFaults(t *testing.T) {
	for _, tc := range single {
		t.Run(tc.name, func(t *testing.T) {
			r := group(t, 3)
			o := r.oracle()
			o.watch(time.Second)
			end := tc.fault(r)
			o.watch(6 * time.Second)
			end()
			o.watch(3 * time.Second)
			o.check(t, exactLag)
			testkit.Eventually(t, func() string { return r.agree(r.members...) })
		})
	}
}

// TestExactUnderNATSFaults is TestExactUnderFaults with two NATS servers.
func TestExactUnderNATSFaults(t *testing.T) {
	signal := func(r *rig, h *handle, s syscall.Signal) {
		if err := h.cmd.Process.Signal(s); err != nil {
			r.t.Fatal(err)
		}
	}
	network := func(f func(servers []*handle) rule) func(*rig, []*handle) func() {
		return func(r *rig, servers []*handle) func() {
			r.obey(f(servers))
			return func() { r.obey(healthy) }
		}
	}
	for _, tc := range []struct {
		name  string
		fault func(r *rig, servers []*handle) (end func())
	}{
		{"one server killed", func(_ *rig, servers []*handle) func() { servers[0].kill(); return func() {} }},
		{"one server stopped", func(r *rig, servers []*handle) func() {
			signal(r, servers[0], syscall.SIGSTOP)
			return func() { signal(r, servers[0], syscall.SIGCONT) }
		}},
		{"servers cut from each other", network(func(s []*handle) rule {
			return both(between(s[:1], s[1:], severed), between(s[1:], s[:1], severed))
		})},
		{"no server reachable", network(func(s []*handle) rule { return both(around(s[0].addr, severed), around(s[1].addr, severed)) })},
		{"20% loss", network(func([]*handle) rule { return everywhere(fault{loss: .2}) })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			var servers []*handle
			for i := range 2 {
				h := r.launch("nats", 8+i)
				var routes []string
				for _, o := range servers {
					routes = append(routes, "nats://"+o.addr.String()+":6222")
				}
				h.tell(t, order{Do: "serve", Name: fmt.Sprint("nats-", i), Routes: routes})
				servers = append(servers, h)
				r.nats = append(r.nats, "nats://"+h.addr.String()+":4222")
			}
			t.Logf("3 members joined and equal after %v", r.form(3))
			o := r.oracle()
			o.watch(time.Second)
			end := tc.fault(r, servers)
			o.watch(6 * time.Second)
			end()
			o.watch(3 * time.Second)
			limit := exactLag
			if tc.name == "20% loss" {
				limit = lossyLag
			}
			o.check(t, limit)
			t.Logf("joined and equal %v after that", testkit.Eventually(t, func() string { return r.agree(r.members...) }))
		})
	}
}
