package natsbus_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
	"github.com/grapevine-epp/grapevine/cluster/natsbus"
	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

var (
	keyA = bytes.Repeat([]byte{1}, 32)
	keyB = bytes.Repeat([]byte{2}, 32)
)

func startServer(t testing.TB, o embedded.Options) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// node is a replica over NATS.
type node struct {
	*clustertest.Replica
	bus *natsbus.Bus
}

func newNode(t testing.TB, name string, urls []string, change func(*natsbus.Options)) *node {
	t.Helper()
	opt := natsbus.Options{
		Self: cluster.NewMember(name, "test"), URLs: urls, Group: "test", Keys: [][]byte{keyA},
	}
	if change != nil {
		change(&opt)
	}
	bus, err := natsbus.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{clustertest.NewReplica(cluster.Options{Self: opt.Self, Bus: bus, Share: cluster.SharePartitioned}), bus}
	t.Cleanup(func() { _ = n.Close() })
	return n
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

func three(t *testing.T, urls ...[]string) []*node {
	t.Helper()
	var nodes []*node
	for i, name := range []string{"a", "b", "c"} {
		n := newNode(t, name, urls[i%len(urls)], nil)
		n.Start(t, "e1", "e2", "e3")
		nodes = append(nodes, n)
	}
	testkit.Eventually(t, func() string { return joined(nodes...) })
	return nodes
}

// readAll makes the readers of all sources append numbers up to seq and waits until every replica
// has them.
func readAll(t *testing.T, seq uint64, nodes ...*node) time.Duration {
	t.Helper()
	return testkit.Eventually(t, func() string { return clustertest.ReadAll([]string{"e1", "e2", "e3"}, seq, replicas(nodes)...) })
}

func TestShare(t *testing.T) {
	s := startServer(t, embedded.Options{User: "u", Password: "p"})
	withUser := func(o *natsbus.Options) { o.User, o.Password = "u", "p" }
	var nodes []*node
	for _, name := range []string{"a", "b", "c"} {
		n := newNode(t, name, []string{s.URL()}, withUser)
		n.Start(t, "e1", "e2", "e3")
		nodes = append(nodes, n)
	}
	testkit.Eventually(t, func() string { return joined(nodes...) })
	_ = nodes[0].Load.Set("k", []byte("7"))
	testkit.Eventually(t, func() string { return believes(nodes[0], "7", nodes...) })
	readAll(t, 999, nodes...)
	testkit.Eventually(t, func() string {
		for _, n := range nodes {
			if st := n.Status(); st.Health.State != "joined" || st.Logs[0].Exact != 3 {
				return fmt.Sprintf("%+v %+v", st.Health, st.Logs)
			}
		}
		return ""
	})
	c := nodes[2]
	_ = c.Load.Set("k", []byte("7"))
	testkit.Eventually(t, func() string { return believes(c, "7", nodes[:2]...) })
	_ = c.Close()
	t.Logf("share vanished after %v", testkit.Eventually(t, func() string { return believes(c, "", nodes[:2]...) }))
	t.Logf("removed after %v", testkit.Eventually(t, func() string { return joined(nodes[:2]...) }))
	readAll(t, 1999, nodes[:2]...)
}

// TestServerGone stops the only server. Replicas report it, continue alone, and rejoin when it is
// back.
func TestServerGone(t *testing.T) {
	bind := parts.FreeAddress(t)
	s := startServer(t, embedded.Options{Bind: bind})
	nodes := three(t, []string{s.URL()})
	readAll(t, 9, nodes...)
	s.Stop()
	testkit.Eventually(t, func() string {
		if h := nodes[0].Status().Health; h.State != "partitioned" || h.OK {
			return fmt.Sprintf("%+v", h)
		}
		return ""
	})
	testkit.Eventually(t, func() string {
		for _, n := range nodes {
			if r := n.Sums.Role("e1"); r != cluster.RoleReader {
				return fmt.Sprintf("%s is %v", n.Self().Name, r)
			}
		}
		return ""
	})
	startServer(t, embedded.Options{Bind: bind})
	testkit.Eventually(t, func() string { return joined(nodes...) })
	readAll(t, 19, nodes...)
}

// TestRefusedForAWhile starts replicas before their server, which then rejects their password for a
// while. They report it and join once they can.
func TestRefusedForAWhile(t *testing.T) {
	bind := parts.FreeAddress(t)
	login := func(o *natsbus.Options) { o.User, o.Password = "u", "p" }
	a, b := newNode(t, "a", []string{"nats://" + bind}, login), newNode(t, "b", []string{"nats://" + bind}, login)
	a.Start(t, "e1")
	b.Start(t, "e1")
	says := func(what string) {
		t.Helper()
		testkit.Eventually(t, func() string {
			if h := a.Status().Health; h.OK || h.State != "partitioned" || !strings.Contains(strings.ToLower(h.Line), what) {
				return h.Line
			}
			return ""
		})
	}
	says("not connected to nats")
	s := startServer(t, embedded.Options{Bind: bind, User: "u", Password: "p"})
	testkit.Eventually(t, func() string { return joined(a, b) })
	s.Stop()
	s = startServer(t, embedded.Options{Bind: bind, User: "u", Password: "another"})
	says("authorization")
	time.Sleep(500 * time.Millisecond) // a few more attempts
	s.Stop()
	startServer(t, embedded.Options{Bind: bind, User: "u", Password: "p"})
	testkit.Eventually(t, func() string { return joined(a, b) })
}

func TestLeave(t *testing.T) {
	s := startServer(t, embedded.Options{})
	nodes := three(t, []string{s.URL()})
	if err := nodes[2].Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := testkit.Eventually(t, func() string { return joined(nodes[:2]...) })
	t.Logf("gone %v after leaving", took)
	for _, n := range nodes[:2] { // it was not lost: it announced the restart
		if s := n.Status(); slices.ContainsFunc(s.Lost, func(l cluster.Lost) bool { return l.Name == nodes[2].Self().Name }) {
			t.Errorf("%s counts it as crashed: %+v", n.Self().Name, s.Lost)
		}
	}
	time.Sleep(400 * time.Millisecond)
	testkit.Eventually(t, func() string { return joined(nodes[:2]...) })
}

// TestUnknownPeers: messages from clients without the key are rejected.
func TestUnknownPeers(t *testing.T) {
	s := startServer(t, embedded.Options{})
	nodes := three(t, []string{s.URL()})
	stranger := newNode(t, "s", []string{s.URL()}, func(o *natsbus.Options) { o.Keys = [][]byte{keyB} })
	stranger.Start(t, "e1")
	plain := newNode(t, "t", []string{s.URL()}, func(o *natsbus.Options) { o.Keys = nil })
	plain.Start(t, "e1")
	conn, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	heard := make(chan *nats.Msg, 100)
	if _, err := conn.ChanSubscribe("grapevine.test.hb", heard); err != nil {
		t.Fatal(err)
	}
	_ = conn.Publish("grapevine.test.all", []byte("garbage"))
	for range 10 {
		msg := <-heard
		_ = conn.Publish("grapevine.test.all", msg.Data) // a heartbeat replayed as a frame
		msg.Data[len(msg.Data)-1] ^= 1
		_ = conn.Publish("grapevine.test.hb", msg.Data)
	}
	testkit.Eventually(t, func() string {
		r := nodes[0].Status().Bus.Refused
		if r["key"] == 0 || r["plaintext"] == 0 || r["frame"] == 0 {
			return fmt.Sprintf("refused: %v", r)
		}
		return ""
	})
	testkit.Eventually(t, func() string { return joined(nodes...) })
}

func TestKeyRotation(t *testing.T) {
	s := startServer(t, embedded.Options{})
	nodes := three(t, []string{s.URL()})
	for i, keys := range [][][]byte{{keyA, keyB}, {keyB, keyA}, {keyB}} {
		for _, n := range nodes {
			if err := n.bus.SetKeys(keys); err != nil {
				t.Fatal(err)
			}
		}
		readAll(t, uint64(100*(i+1)), nodes...)
	}
	testkit.Eventually(t, func() string { return joined(nodes...) })
	for _, n := range nodes {
		if r := n.Status().Bus.Refused; r["key"] > 0 {
			t.Errorf("refusals: %v", r)
		}
	}
}
