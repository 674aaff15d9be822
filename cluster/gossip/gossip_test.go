package gossip_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
	"github.com/grapevine-epp/grapevine/cluster/gossip"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

var (
	keyA = bytes.Repeat([]byte{1}, 32)
	keyB = bytes.Repeat([]byte{2}, 32)
)

// node is a replica over real sockets.
type node struct {
	*clustertest.Replica
	bus  *gossip.Bus
	addr string
}

// newNode returns a replica with options modified by change.
func newNode(t testing.TB, name string, join []string, change func(*gossip.Options)) *node {
	t.Helper()
	addr := parts.FreeAddress(t)
	opt := gossip.Options{
		Self: cluster.NewMember(name, "test"), Label: "test", Keys: [][]byte{keyA},
		Bind: addr, StreamBind: "127.0.0.1:0", Join: join, Rejoin: 500 * time.Millisecond,
	}
	if change != nil {
		change(&opt)
	}
	bus, err := gossip.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	r := clustertest.NewReplica(cluster.Options{Self: opt.Self, Bus: bus, Share: cluster.SharePartitioned, Tuning: cluster.Tuning{Relay: true}})
	return &node{Replica: r, bus: bus, addr: addr}
}

// three starts three replicas that have joined each other.
func three(t *testing.T, change func(*gossip.Options)) []*node {
	t.Helper()
	var nodes []*node
	var join []string
	for _, name := range []string{"a", "b", "c"} {
		n := newNode(t, name, join, change)
		n.Start(t, "e1", "e2", "e3")
		t.Cleanup(func() { _ = n.Close() })
		nodes = append(nodes, n)
		join = append(join, n.addr)
	}
	testkit.Eventually(t, func() string { return joined(nodes...) })
	return nodes
}

func replicas(nodes []*node) (rs []*clustertest.Replica) {
	for _, n := range nodes {
		rs = append(rs, n.Replica)
	}
	return rs
}

func joined(nodes ...*node) string { return clustertest.Joined(replicas(nodes)...) }

// believes returns why other replicas do not have v as n's load, or "".
func believes(n *node, v string, others ...*node) string {
	return n.LoadMismatch(v, replicas(others)...)
}

// readAll makes the readers of all sources append numbers up to seq and waits until every replica
// has them.
func readAll(t *testing.T, seq uint64, nodes ...*node) time.Duration {
	t.Helper()
	return testkit.Eventually(t, func() string { return clustertest.ReadAll([]string{"e1", "e2", "e3"}, seq, replicas(nodes)...) })
}

func TestShare(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		t.Run(fmt.Sprintf("tcp=%v", tcp), func(t *testing.T) {
			nodes := three(t, func(o *gossip.Options) { o.TCPOnly = tcp })
			_ = nodes[0].Load.Set("k", []byte("7"))
			testkit.Eventually(t, func() string { return believes(nodes[0], "7", nodes...) })
			readAll(t, 99, nodes...)
			testkit.Eventually(t, func() string {
				for _, n := range nodes {
					if s := n.Status(); !s.Health.OK || s.Health.State != "joined" || s.Logs[0].Exact != 3 {
						return fmt.Sprintf("%+v %+v", s.Health, s.Logs)
					}
				}
				return ""
			})
		})
	}
}

// TestZones: over real streams, deltas are relayed within remote zones, and every replica gets
// every delta, even after the relays are gone.
func TestZones(t *testing.T) {
	var nodes []*node
	var join []string
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		n := newNode(t, name, join, func(o *gossip.Options) { o.Self.Zone = fmt.Sprintf("zone-%d", i%2) })
		n.Start(t, "e1", "e2", "e3")
		t.Cleanup(func() { _ = n.Close() })
		nodes, join = append(nodes, n), append(join, n.addr)
	}
	testkit.Eventually(t, func() string { return joined(nodes...) })
	relayed := func(n *node) uint64 { return n.Status().Stats.Relayed }
	seq := uint64(0)
	waitRelay := func(nodes ...*node) {
		t.Helper()
		testkit.Eventually(t, func() string {
			seq += 10
			readAll(t, seq, nodes...)
			for _, n := range nodes {
				if relayed(n) > 0 {
					return ""
				}
			}
			return "nothing was passed on"
		})
	}
	waitRelay(nodes...)
	var left []*node
	gone := 0
	for i, n := range nodes { // a relay in the zone of three members, if there is one
		if gone == 0 && i%2 == 0 && relayed(n) > 0 {
			gone++
			clustertest.Stop(t, n.Replica)
			continue
		}
		left = append(left, n)
	}
	testkit.Eventually(t, func() string { return joined(left...) })
	seq += 10
	readAll(t, seq, left...)
	for _, n := range left {
		if s := n.Status(); s.Stats.BorderIn == 0 || s.Stats.BorderOut == 0 {
			t.Errorf("%s: %d bytes from other zones, %d to them", n.Self().Name, s.Stats.BorderIn, s.Stats.BorderOut)
		}
	}
}

// TestSuddenDeath kills a member. Its load values disappear, it is removed, and its sources are
// taken over. Then it rejoins as a new process.
func TestSuddenDeath(t *testing.T) {
	nodes := three(t, nil)
	readAll(t, 9, nodes...)
	a, b, c := nodes[0], nodes[1], nodes[2]
	_ = c.Load.Set("k", []byte("7"))
	testkit.Eventually(t, func() string { return believes(c, "7", a, b) })
	_ = c.Close()
	t.Logf("share vanished after %v", testkit.Eventually(t, func() string { return believes(c, "", a, b) }))
	t.Logf("removed after %v", testkit.Eventually(t, func() string { return joined(a, b) }))
	readAll(t, 19, a, b)

	again := newNode(t, "c", []string{a.addr, b.addr}, nil)
	again.Start(t, "e1", "e2", "e3")
	t.Cleanup(func() { _ = again.Close() })
	testkit.Eventually(t, func() string { return joined(a, b, again) })
	if p, err := again.WaitSettled(t.Context()); p != cluster.Settled || err != nil {
		t.Errorf("phase %v, %v", p, err)
	}
	if got := again.Sums.Get("e1"); got != 210 {
		t.Errorf("sum after settling is %d", got)
	}
}

func TestLeave(t *testing.T) {
	nodes := three(t, nil)
	readAll(t, 9, nodes...)
	a, b, c := nodes[0], nodes[1], nodes[2]
	ctx, cancel := context.WithTimeout(t.Context(), testkit.HangTimeout)
	defer cancel()
	go func() { // the other members start to read when assigned
		for ctx.Err() == nil {
			for _, n := range []*node{a, b} {
				for _, s := range []string{"e1", "e2", "e3"} {
					n.Index.Reading(s, n.Sums.Role(s) == cluster.RoleReader)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if err := c.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	took := testkit.Eventually(t, func() string { return joined(a, b) })
	t.Logf("gone %v after leaving", took)
}

func TestKeyRotation(t *testing.T) {
	nodes := three(t, nil)
	for _, keys := range [][][]byte{{keyA, keyB}, {keyB, keyA}, {keyB}} {
		for _, n := range nodes {
			if err := n.bus.SetKeys(keys); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	late := newNode(t, "d", []string{nodes[0].addr}, func(o *gossip.Options) { o.Keys = [][]byte{keyB} })
	late.Start(t, "e1", "e2", "e3")
	t.Cleanup(func() { _ = late.Close() })
	all := append(nodes, late)
	testkit.Eventually(t, func() string { return joined(all...) })
	readAll(t, 9, all...)

	old := newNode(t, "old", []string{nodes[0].addr}, nil)
	old.Start(t, "e1")
	t.Cleanup(func() { _ = old.Close() })
	testkit.Eventually(t, func() string {
		if h := old.Status().Health; h.State != "alone" || h.OK {
			return fmt.Sprintf("%+v", h)
		}
		return ""
	})
	testkit.Eventually(t, func() string { return joined(all...) })
	if s := nodes[0].Status(); s.Bus.Refused["key"] == 0 {
		t.Errorf("refusals: %v", s.Bus.Refused)
	}
}

// TestUnknownPeers: replicas with another label, without a key, or with another key cannot join.
func TestUnknownPeers(t *testing.T) {
	nodes := three(t, nil)
	for reason, change := range map[string]func(*gossip.Options){
		"label":     func(o *gossip.Options) { o.Label = "other" },
		"plaintext": func(o *gossip.Options) { o.Keys = nil },
		"key":       func(o *gossip.Options) { o.Keys = [][]byte{keyB} },
	} {
		s := newNode(t, "stranger", []string{nodes[0].addr}, change)
		s.Start(t, "e1")
		_ = s.Load.Set("k", []byte("666"))
		testkit.Eventually(t, func() string {
			if st := nodes[0].Status(); st.Bus.Refused[reason] == 0 {
				return fmt.Sprintf("refused: %v", st.Bus.Refused)
			}
			return ""
		})
		if h := s.Status(); len(h.Peers) != 0 {
			t.Errorf("%s: untrusted replica sees %d peers", reason, len(h.Peers))
		}
		for _, n := range nodes {
			if v := n.Loads.Get(s.Self().ID, "k"); v != "" {
				t.Errorf("%s: %s has %q from the untrusted replica", reason, n.Self().Name, v)
			}
		}
		_ = s.Close()
	}
	testkit.Eventually(t, func() string { return joined(nodes...) })
}

// TestWrongAdvertisedAddress: a member that the others cannot dial fails to open. If probes do not
// reach it either, it counts as dead before it detects the problem.
func TestWrongAdvertisedAddress(t *testing.T) {
	parts.Full(t)
	closed, nowhere := parts.FreeAddress(t), "127.0.0.99"
	for wrong, change := range map[string]func(*gossip.Options){
		closed:  func(o *gossip.Options) { o.StreamAdvertise = closed },
		nowhere: func(o *gossip.Options) { o.Advertise = nowhere },
	} {
		t.Run(wrong, func(t *testing.T) {
			a := newNode(t, "a", nil, nil)
			a.Start(t, "e1")
			defer a.Close()
			b := newNode(t, "b", []string{a.addr}, change)
			err := b.Open(t.Context())
			if err == nil {
				_ = b.Close()
				t.Fatal("Open succeeded")
			}
			if !strings.Contains(err.Error(), gossip.ErrUnreachable.Error()) || !strings.Contains(err.Error(), wrong) {
				t.Errorf("error does not name the address: %v", err)
			}
			testkit.Eventually(t, func() string { return joined(a) })
		})
	}
}

// fakeDNS is a Resolver whose answers change.
type fakeDNS chan []string

func (f fakeDNS) LookupHost(context.Context, string) ([]string, error) {
	addrs := <-f
	f <- addrs
	return addrs, nil
}

// TestNameIsResolvedAgain: members join when a name resolves to their addresses only after
// startup.
func TestNameIsResolvedAgain(t *testing.T) {
	dns := fakeDNS(make(chan []string, 1))
	dns <- []string{"127.0.0.2"}
	var nodes []*node
	port := ""
	for i, ip := range []string{"127.0.0.3", "127.0.0.4"} {
		n := newNode(t, string(rune('a'+i)), nil, func(o *gossip.Options) {
			_, p, _ := net.SplitHostPort(o.Bind)
			if port == "" {
				port = p
			}
			o.Bind, o.StreamBind = net.JoinHostPort(ip, port), net.JoinHostPort(ip, "0")
			o.Join, o.Resolver, o.TCPOnly = []string{"replicas.test:" + port}, dns, true
		})
		n.Start(t, "e1")
		t.Cleanup(func() { _ = n.Close() })
		nodes = append(nodes, n)
	}
	if s := joined(nodes...); s == "" {
		t.Fatal("joined before the name resolved")
	}
	<-dns
	dns <- []string{"127.0.0.3", "127.0.0.4"}
	testkit.Eventually(t, func() string { return joined(nodes...) })
}

// TestNameMoves replaces all members behind a name except one, whose address the name no longer
// contains. It finds the new members. One that restarts at its old address without knowing any
// member is found too.
func TestNameMoves(t *testing.T) {
	dns := fakeDNS(make(chan []string, 1))
	dns <- []string{"127.0.0.3", "127.0.0.4", "127.0.0.5"}
	_, port, _ := net.SplitHostPort(parts.FreeAddress(t))
	open := func(name, ip string, join ...string) *node {
		n := newNode(t, name, join, func(o *gossip.Options) {
			o.Bind, o.StreamBind = net.JoinHostPort(ip, port), net.JoinHostPort(ip, "0")
			o.Resolver, o.TCPOnly = dns, true
		})
		n.Start(t, "e1", "e2", "e3")
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	name := "replicas.test:" + port
	a, b, c := open("a", "127.0.0.3", name), open("b", "127.0.0.4", name), open("c", "127.0.0.5", name)
	testkit.Eventually(t, func() string { return joined(a, b, c) })
	readAll(t, 9, a, b, c)
	for _, n := range []*node{b, c} {
		_ = n.Close()
	}
	<-dns
	dns <- []string{"127.0.0.6", "127.0.0.7"}
	d, e := open("d", "127.0.0.6", name), open("e", "127.0.0.7", name)
	testkit.Eventually(t, func() string { return joined(a, d, e) })
	readAll(t, 19, a, d, e)
	again := open("b", "127.0.0.4")
	testkit.Eventually(t, func() string { return joined(a, d, e, again) })
	readAll(t, 29, a, d, e, again)
}

// TestFoundMembersAreJoined: members reported by Options.Found are joined immediately. With a
// member present, names would be resolved again only after an hour.
func TestFoundMembersAreJoined(t *testing.T) {
	told := make(chan []string, 1)
	moved := make(chan struct{}, 1)
	var nodes []*node
	for _, name := range []string{"a", "b", "c"} {
		n := newNode(t, name, nil, func(o *gossip.Options) {
			o.TCPOnly, o.Rejoin = true, time.Hour
			if name == "c" {
				o.Moved, o.Found = moved, func(context.Context) ([]string, error) {
					addrs := <-told
					told <- addrs
					return addrs, nil
				}
			}
		})
		if nodes = append(nodes, n); name == "c" {
			told <- []string{nodes[0].addr, n.addr} // includes its own address
		}
		n.Start(t, "e1")
		t.Cleanup(func() { _ = n.Close() })
	}
	testkit.Eventually(t, func() string { return joined(nodes[0], nodes[2]) })
	<-told
	told <- []string{nodes[0].addr, nodes[1].addr}
	moved <- struct{}{}
	testkit.Eventually(t, func() string { return joined(nodes...) })
}

// TestLeaveAfterClose checks that leaving a closed bus does nothing: a server may be stopped twice.
func TestLeaveAfterClose(t *testing.T) {
	a := newNode(t, "a", nil, nil)
	a.Start(t, "e1")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Leave(t.Context()); err != nil {
		t.Errorf("Leave() = %v after Close, want nil", err)
	}
}
