package events

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Bounds of publishers that dial in.
const (
	inboundConns   = 4096      // connections, where Inbound does not say
	inboundPerHost = 16        // of them, from one address of the pool
	relayParts     = 4         // one in so many, from one address outside of it
	inboundMessage = 16 << 20  // bytes of a message
	maxTopic       = 1024      // bytes of a topic: what it names is kept for as long as its connection
	maxDenied      = 64        // names on one connection that the pool may come to know
	inboundScheme  = "inbound" // of Stream.Events
)

// Reasons for which what dials in is not believed.
const (
	refusedStranger  = "stranger"  // its address is none of the pool's
	refusedCrowded   = "crowded"   // too many connections from it
	refusedTopic     = "topic"     // its topic names another endpoint, or nobody
	refusedAmbiguous = "ambiguous" // several endpoints have its address, and its topic names none
	refusedReplaced  = "replaced"  // a newer connection speaks for its endpoint
)

var (
	errHungUp = errors.New("its publisher hung up")
	errNobody = errors.New("no publisher has dialled in for it")
)

// Inbound says where publishers may dial in.
type Inbound struct {
	// Listen are addresses, tcp://host:port: publishers of rank r dial the r-th.
	Listen []string
	Topic  string // prefix to subscribe to; "" takes all
	// Allow are addresses outside of the pool that may publish for its endpoints, which
	// their topics name: forwarders.
	Allow []netip.Prefix
	// Connections is how many there may be at a time: a half of them from addresses of
	// Allow, a quarter from one of these. 0 means 4096.
	Connections int
}

// InboundFrom is the Stream.Events of an engine at host that dials in.
func InboundFrom(host string) string { return inboundScheme + "://" + host }

// dialsIn returns the host of an engine that dials in.
func (s *Stream) dialsIn() (host string, ok bool) {
	return strings.CutPrefix(s.Events, inboundScheme+"://")
}

// inbound hands messages of publishers that dial in to the streams that they belong to.
// A stream listens to one connection, the newest.
type inbound struct {
	m     *Manager
	o     Inbound
	socks []*zmtp.Sub

	mu    sync.Mutex
	subs  map[block.Source]*subscriber
	by    map[block.Source]*guest // whom each listens to
	conns map[*caller]struct{}
	open  map[netip.Addr]int // connections, also such as have not shaken hands
	all   int                // of them
	relay int                // of them, from addresses outside of the pool
}

// caller is one connection.
type caller struct {
	conn   *zmtp.Conn
	from   netip.Addr
	rank   uint16
	relay  bool              // it may speak for others
	guests map[string]*guest // by what topics name. Of the goroutine that reads.
	denied []string          // names of endpoints that were not known when they came; under inbound.mu
}

// guest is what one connection says of one source.
type guest struct {
	sub  *subscriber
	conn *zmtp.Conn
	gone atomic.Bool // another connection has its place, or the stream has ended
}

// Listen begins to listen for publishers that dial in. It may be called once.
func (m *Manager) Listen(o Inbound) error {
	in := m.inbound
	if o.Connections <= 0 {
		o.Connections = inboundConns
	}
	in.mu.Lock()
	in.o, in.conns, in.open = o, map[*caller]struct{}{}, map[netip.Addr]int{}
	in.mu.Unlock()
	for rank, at := range o.Listen {
		sock, err := zmtp.ListenSub(at, zmtp.SubOptions{
			Options: zmtp.Options{
				Heartbeat: m.opt.Heartbeat, Handshake: m.opt.Handshake,
				Limits: zmtp.Limits{Frame: inboundMessage, Message: inboundMessage},
			},
			MaxConns: o.Connections, Admit: in.admit, Left: in.left,
			Serve: func(c *zmtp.Conn) { in.serve(c, uint16(rank)) },
		})
		if err != nil {
			in.close()
			return err
		}
		in.socks = append(in.socks, sock)
		m.opt.Log.Info("publishers of events may dial in", "address", sock.Addr().String(), "rank", rank)
	}
	return nil
}

// Inbound returns the addresses at which publishers may dial in.
func (m *Manager) Inbound() (out []net.Addr) {
	for _, s := range m.inbound.socks {
		out = append(out, s.Addr())
	}
	return out
}

func (in *inbound) close() {
	for _, s := range in.socks {
		_ = s.Close() // nothing was written to it
	}
}

func addrOf(a net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

func (in *inbound) refuse(reason string) { in.m.metrics.refused.WithLabelValues(reason).Inc() }

func (in *inbound) relays(from netip.Addr) bool {
	for _, p := range in.o.Allow {
		if p.Contains(from) {
			return true
		}
	}
	return false
}

// admit decides by a peer's address alone.
func (in *inbound) admit(a net.Addr) bool {
	from := addrOf(a)
	in.mu.Lock()
	defer in.mu.Unlock()
	relay := in.relays(from)
	known, most := relay, inboundPerHost
	for _, s := range in.subs {
		host, _ := s.at.dialsIn()
		known = known || host == from.String()
	}
	if relay { // it is many
		most = max(most, in.o.Connections/relayParts)
	}
	switch {
	case !known:
		in.refuse(refusedStranger)
	case in.open[from] >= most, in.all >= in.o.Connections, relay && in.relay >= max(1, in.o.Connections/2):
		in.refuse(refusedCrowded)
	default:
		in.count(from, 1)
		return true
	}
	return false
}

// count notes that an address has one connection more, or less; mu is held.
func (in *inbound) count(from netip.Addr, change int) {
	in.all += change
	if in.relays(from) {
		in.relay += change
	}
	if in.open[from] += change; in.open[from] <= 0 {
		delete(in.open, from)
	}
}

// left notes that a connection has ended.
func (in *inbound) left(a net.Addr) {
	from := addrOf(a)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.count(from, -1)
}

// serve reads one connection to its end.
func (in *inbound) serve(conn *zmtp.Conn, rank uint16) {
	from := addrOf(conn.RemoteAddr())
	in.mu.Lock()
	c := &caller{conn: conn, from: from, rank: rank, relay: in.relays(from), guests: map[string]*guest{}}
	in.conns[c] = struct{}{}
	in.mu.Unlock()
	err := conn.Subscribe(in.o.Topic)
	if err == nil && !c.relay {
		in.mu.Lock()
		if s, _ := in.find(c, nil); s != nil { // the only one that it can be
			in.attach(c, s)
		}
		in.mu.Unlock()
	}
	var m zmtp.Message
	for err == nil {
		if err = conn.Recv(&m); err == nil {
			in.message(c, &m)
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.conns, c)
	for src, g := range in.by {
		if g.conn == conn && !g.gone.Swap(true) {
			delete(in.by, src)
			g.sub.lost(errors.Join(errHungUp, err))
		}
	}
}

// message hands a message to the stream that its topic and its connection name.
func (in *inbound) message(c *caller, m *zmtp.Message) {
	var topic []byte
	if m.Len() > 2 {
		topic = m.Frame(0)
	}
	if len(topic) > maxTopic { // it would be kept
		in.refuse(refusedTopic)
		return
	}
	name := nameIn(topic)
	g, known := c.guests[string(name)]
	if !known || g.gone.Load() && in.vacant(g) {
		if g = in.welcome(c, name); g == nil {
			return
		}
	}
	if g.gone.Load() {
		in.refuse(refusedReplaced)
		return
	}
	g.sub.message(m)
}

// vacant reports whether a place that was given to another connection, or whose stream
// has ended, may be had again.
func (in *inbound) vacant(g *guest) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.by[g.sub.src] == nil
}

// welcome finds the stream of a name that a connection has not told before. Of names that
// are found no more are kept than the pool has.
func (in *inbound) welcome(c *caller, name []byte) *guest {
	in.mu.Lock()
	defer in.mu.Unlock()
	s, reason := in.find(c, name)
	if s == nil {
		// No guest is kept: the pool may come to know it.
		if len(c.denied) < maxDenied && !slices.Contains(c.denied, string(name)) {
			c.denied = append(c.denied, string(name))
		}
		in.refuse(reason)
		return nil
	}
	g := in.attach(c, s)
	maps.DeleteFunc(c.guests, func(_ string, g *guest) bool { return in.subs[g.sub.src] != g.sub })
	c.guests[string(name)] = g
	return g
}

// attach has a stream listen to a connection; mu is held.
func (in *inbound) attach(c *caller, s *subscriber) *guest {
	old := in.by[s.src]
	if old != nil && old.sub == s && old.conn == c.conn {
		return old
	}
	if old != nil && !old.gone.Swap(true) {
		old.sub.lost(fmt.Errorf("%w: another has dialled in for it", errHungUp))
	}
	g := &guest{sub: s, conn: c.conn}
	in.by[s.src] = g
	s.connected(c.conn)
	return g
}

// find returns the stream that a connection's topic, or the name in it, belongs to, or why
// there is none. topic nil asks for the only one that the connection can belong to. mu is held.
func (in *inbound) find(c *caller, topic []byte) (found *subscriber, reason string) {
	pod, named := podOf(topic)
	reason = refusedTopic
	for src, s := range in.subs {
		host, _ := s.at.dialsIn()
		if src.Rank != c.rank || !c.relay && host != c.from.String() {
			continue
		}
		switch {
		case named && pod != host && pod != s.name && (pod != s.pod || pod == ""):
			continue
		case !named && c.relay:
			continue
		case found != nil:
			return nil, refusedAmbiguous
		}
		found = s
	}
	return found, reason
}

// nameIn returns the part of a topic that says whose it is, kv@ENDPOINT@, or nothing.
func nameIn(topic []byte) []byte {
	pod, named := podOf(topic)
	if !named {
		return nil
	}
	return topic[:len("kv@")+len(pod)+len("@")]
}

// podOf takes the endpoint out of a topic kv@ENDPOINT@MODEL.
func podOf(topic []byte) (pod string, ok bool) {
	rest, ok := bytes.CutPrefix(topic, []byte("kv@"))
	if !ok {
		return "", false
	}
	name, _, ok := bytes.Cut(rest, []byte("@"))
	return string(name), ok
}

// expect begins to listen for a stream whose engine dials in.
func (in *inbound) expect(s *subscriber) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.subs[s.src] = s
	s.waits()
}

// seat gives connections that are there already to streams that their topics have named
// before, or that no other can be of, once all streams are known: an engine that has
// nothing to say for now would not be heard otherwise.
func (in *inbound) seat() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for c := range in.conns {
		c.denied = slices.DeleteFunc(c.denied, func(topic string) bool {
			s, _ := in.find(c, []byte(topic))
			if s != nil && in.by[s.src] == nil {
				in.attach(c, s)
			}
			return s != nil
		})
		if s, _ := in.find(c, nil); s != nil && !c.relay && in.by[s.src] == nil {
			in.attach(c, s)
		}
	}
}

// forget ends that; a connection may go on for others.
func (in *inbound) forget(s *subscriber) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.subs[s.src] == s {
		delete(in.subs, s.src)
	}
	if g := in.by[s.src]; g != nil && g.sub == s {
		g.gone.Store(true)
		delete(in.by, s.src)
	}
}
