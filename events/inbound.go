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

// Limits of inbound publishers.
const (
	inboundConns   = 4096      // default maximum of connections
	inboundPerHost = 16        // connections per address of the pool
	relayParts     = 4         // 1/relayParts of the connections per address outside the pool
	inboundMessage = 16 << 20  // bytes of a message
	maxTopic       = 1024      // bytes of a topic; its name is kept until the connection ends
	maxDenied      = 64        // unknown names kept per connection, in case the pool adds them
	inboundScheme  = "inbound" // of Stream.Events
)

// Reasons for rejecting inbound connections or messages.
const (
	refusedUnknown   = "stranger"  // its address is not in the pool
	refusedCrowded   = "crowded"   // too many connections from its address
	refusedTopic     = "topic"     // its topic names another endpoint or none
	refusedAmbiguous = "ambiguous" // several endpoints have its address, and its topic names none
	refusedReplaced  = "replaced"  // a newer connection has replaced it for its endpoint
)

var (
	errHungUp = errors.New("its publisher hung up")
	errNobody = errors.New("no publisher has connected for it")
)

// Inbound configures the listeners for publishers.
type Inbound struct {
	// Listen are addresses, tcp://host:port. Publishers of rank r connect to the r-th.
	Listen []string
	Topic  string // topic prefix to subscribe to; "" subscribes to all
	// Allow lists addresses outside the pool (forwarders) that may publish for endpoints named in
	// their topics.
	Allow []netip.Prefix
	// Connections is the maximum number of connections: at most half from addresses in Allow, and a
	// quarter from one of these. 0 means 4096.
	Connections int
}

// InboundFrom returns the Stream.Events value of an engine at host that connects to the picker.
func InboundFrom(host string) string { return inboundScheme + "://" + host }

// dialsIn returns the host of an engine that connects to the picker.
func (s *Stream) dialsIn() (host string, ok bool) {
	return strings.CutPrefix(s.Events, inboundScheme+"://")
}

// inbound dispatches messages of inbound publishers to their streams. A stream uses the newest
// connection only.
type inbound struct {
	m     *Manager
	o     Inbound
	socks []*zmtp.Sub

	mu    sync.Mutex
	subs  map[block.Source]*subscriber
	by    map[block.Source]*guest // current guest of each source
	conns map[*caller]struct{}
	open  map[netip.Addr]int // connections by address, including those before the handshake
	all   int                // connections in total
	relay int                // connections from outside the pool
}

// caller is one inbound connection.
type caller struct {
	conn   *zmtp.Conn
	from   netip.Addr
	rank   uint16
	relay  bool              // it may publish for other hosts
	guests map[string]*guest // by name in the topic; used by the reading goroutine only
	denied []string          // names of unknown endpoints; guarded by inbound.mu
}

// guest is one connection's role as the publisher of one source.
type guest struct {
	sub  *subscriber
	conn *zmtp.Conn
	gone atomic.Bool // replaced by another connection, or the stream has ended
}

// Listen opens the listeners for inbound publishers. It may be called once.
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
				Heartbeat: m.opt.Heartbeat, AlignPing: m.opt.alignPing, Handshake: m.opt.Handshake,
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
		m.opt.Log.Info("accepting connections from event publishers", "address", sock.Addr().String(), "rank", rank)
	}
	return nil
}

// Inbound returns the listeners' addresses.
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
	if relay { // it publishes for many engines
		most = max(most, in.o.Connections/relayParts)
	}
	switch {
	case !known:
		in.refuse(refusedUnknown)
	case in.open[from] >= most, in.all >= in.o.Connections, relay && in.relay >= max(1, in.o.Connections/2):
		in.refuse(refusedCrowded)
	default:
		in.count(from, 1)
		return true
	}
	return false
}

// count adds change to the connection counts of an address. The caller holds mu.
func (in *inbound) count(from netip.Addr, change int) {
	in.all += change
	if in.relays(from) {
		in.relay += change
	}
	if in.open[from] += change; in.open[from] <= 0 {
		delete(in.open, from)
	}
}

// left records the end of a connection.
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
		if s, _ := in.find(c, nil); s != nil { // the only possible stream
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

// message dispatches a message to the stream named by its topic and connection.
func (in *inbound) message(c *caller, m *zmtp.Message) {
	var topic []byte
	if m.Len() > 2 {
		topic = m.Frame(0)
	}
	if len(topic) > maxTopic { // it would be stored
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

// vacant reports whether the source of a replaced or ended guest is free again.
func (in *inbound) vacant(g *guest) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.by[g.sub.src] == nil
}

// welcome finds the stream of a name that is new on this connection. The number of stored names is
// bounded by the pool's size.
func (in *inbound) welcome(c *caller, name []byte) *guest {
	in.mu.Lock()
	defer in.mu.Unlock()
	s, reason := in.find(c, name)
	if s == nil {
		// No guest is stored, because the pool may add the endpoint later.
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

// attach makes a connection the publisher of a stream. The caller holds mu.
func (in *inbound) attach(c *caller, s *subscriber) *guest {
	old := in.by[s.src]
	if old != nil && old.sub == s && old.conn == c.conn {
		return old
	}
	if old != nil && !old.gone.Swap(true) {
		old.sub.lost(fmt.Errorf("%w: another publisher is connected for it", errHungUp))
	}
	g := &guest{sub: s, conn: c.conn}
	in.by[s.src] = g
	s.connected(c.conn)
	return g
}

// find returns the stream of a connection's topic, or the reason why there is none. With a nil
// topic it returns the only stream that the connection can belong to. The caller holds mu.
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

// nameIn returns the part of a topic that identifies the endpoint, kv@ENDPOINT@, or nil.
func nameIn(topic []byte) []byte {
	pod, named := podOf(topic)
	if !named {
		return nil
	}
	return topic[:len("kv@")+len(pod)+len("@")]
}

// podOf returns the endpoint in a topic kv@ENDPOINT@MODEL.
func podOf(topic []byte) (pod string, ok bool) {
	rest, ok := bytes.CutPrefix(topic, []byte("kv@"))
	if !ok {
		return "", false
	}
	name, _, ok := bytes.Cut(rest, []byte("@"))
	return string(name), ok
}

// expect registers a stream whose engine connects to the picker.
func (in *inbound) expect(s *subscriber) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.subs[s.src] = s
	s.waits()
}

// seat attaches existing connections to streams that their topics have named, or that no other
// connection can serve, once all streams are known. Otherwise an engine without current events
// would appear disconnected.
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

// forget unregisters a stream. Its connection may continue for others.
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
