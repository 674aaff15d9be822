//go:build linux

package clustertest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
	"github.com/grapevine-epp/grapevine/cluster/gossip"
	"github.com/grapevine-epp/grapevine/cluster/natsbus"
	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// memberEnv holds the address of a member's process.
const memberEnv = "GRAPEVINE_NETTEST_ADDRESS"

// TestMain is the test's main, or a member's.
func TestMain(m *testing.M) {
	if addr := os.Getenv(memberEnv); addr != "" {
		if err := beMember(addr); err != nil {
			fmt.Fprintln(os.Stderr, "member", addr+":", err)
			os.Exit(1)
		}
		return
	}
	// Members mostly wait, so several groups fit on a small machine.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// order is a command for a member.
type order struct {
	Do      string // open, write, load, state, drain, attack, serve
	Name    string
	Join    []string
	Label   string
	Keys    [][]byte
	TCPOnly bool
	NATS    []string // servers; none: gossip
	Routes  []string // of serve: other servers
	Sources []string
	Batches uint64
	Value   string
}

// state is a member's knowledge and status.
type state struct {
	Error   string
	ID      string
	Health  cluster.Health
	Phase   string
	Peers   map[string]string // by name
	Known   map[string]clustertest.Known
	Exact   map[string]bool // by source: read by another member, and known exactly
	Reading int
	Loads   map[string]string // by the origin's name
	Refused map[string]uint64
	GivenUp uint64 // times another member was lost
}

// beMember runs a member until its standard input ends.
func beMember(address string) error {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return err
	}
	dev, err := device(addr)
	if err != nil {
		return err
	}
	conn := os.NewFile(3, "devices")
	if err := give(conn, dev); err != nil {
		return fmt.Errorf("handing over the device: %w", err)
	}
	_ = conn.Close()
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<20)
	m := member{addr: addr}
	for in.Scan() {
		var o order
		err := json.Unmarshal(in.Bytes(), &o)
		var s state
		if err == nil {
			err = m.obey(&o)
		}
		if err == nil && m.r != nil {
			s = m.state()
		}
		if err != nil {
			s.Error = err.Error()
		}
		if err := out.Encode(s); err != nil {
			return err
		}
	}
	return nil // the test has ended: exit without leaving
}

type member struct {
	addr    netip.Addr
	r       *clustertest.Reader
	server  *embedded.Server // instead of a reader
	sources []string
	names   map[string]string // by ID, of all members ever seen
}

func (m *member) obey(o *order) error {
	switch o.Do {
	case "open":
		return m.open(o)
	case "serve":
		return m.serve(o)
	case "write":
		m.r.Write(o.Batches)
	case "load":
		return m.r.Load.Set("k", []byte(o.Value))
	case "attack":
		return attack(o.Join)
	case "drain":
		return m.r.Drain(context.Background())
	}
	return nil
}

// open joins on the default ports of all addresses. It advertises this machine's detected address.
func (m *member) open(o *order) error {
	m.sources, m.names = o.Sources, map[string]string{}
	self := cluster.NewMember(o.Name, "test")
	var bus cluster.Bus
	var err error
	if len(o.NATS) > 0 {
		bus, err = natsbus.New(natsbus.Options{Self: self, URLs: o.NATS, Keys: o.Keys})
	} else {
		bus, err = gossip.New(gossip.Options{Self: self, Label: o.Label, Keys: o.Keys, Join: o.Join, TCPOnly: o.TCPOnly})
	}
	if err != nil {
		return err
	}
	m.r = clustertest.NewReader(self, bus)
	return m.r.Begin(context.Background(), o.Sources)
}

// serve runs a NATS server instead of a reader.
func (m *member) serve(o *order) (err error) {
	m.server, err = embedded.Start(embedded.Options{
		Name: o.Name, Bind: m.addr.String() + ":4222", ClusterName: "net", ClusterBind: m.addr.String() + ":6222", Routes: o.Routes,
	})
	return err
}

func (m *member) state() state {
	st := m.r.Status()
	s := state{
		ID: st.Self.ID, Health: st.Health, Phase: st.Phase, Refused: st.Bus.Refused, GivenUp: st.Stats.PeersLost,
		Peers: map[string]string{}, Known: map[string]clustertest.Known{}, Exact: map[string]bool{}, Loads: map[string]string{},
	}
	for _, p := range st.Peers {
		s.Peers[p.Name] = p.State
		m.names[p.ID] = p.Name
	}
	for _, l := range st.Logs {
		s.Reading += l.Reading
	}
	for _, n := range m.sources {
		// As the server does, which reports a source without a reader as approximate. The position comes
		// last: the content may become older only by what is written in between.
		v, known := m.r.Index.Source(n)
		s.Exact[n] = known && v.Knowledge == knowledge.Exact && !v.Reading && v.Reader != ""
		s.Known[n] = clustertest.Known{At: m.r.Index.Position(n), Digest: m.r.Blocks.Digest(n)}
	}
	for id, name := range m.names {
		if v := m.r.Loads.Get(id, "k"); v != "" {
			s.Loads[name] = v
		}
	}
	return s
}
