package natsbus_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/natsbus"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// line proxies connections to an address. It can hold back data from the dialing end: it reads the
// data, including the end of the connection, and forwards it later.
type line struct {
	addr string
	mu   sync.Mutex
	wake *sync.Cond
	held bool
	kept []byte
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	l := &line{}
	l.wake = sync.NewCond(&l.mu)
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.addr = in.Addr().String()
	var wg sync.WaitGroup
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := in.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			l.mu.Lock()
			conns = append(conns, c, d)
			l.mu.Unlock()
			wg.Go(func() { l.pass(d, c) })
			wg.Go(func() { l.back(c, d) })
		}
	})
	t.Cleanup(func() {
		_ = in.Close()
		l.hold(false)
		l.mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		l.mu.Unlock()
		wg.Wait()
	})
	return l
}

func (l *line) hold(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	l.wake.Broadcast()
}

// routed matches the header of a message that one server routes to another, with its size.
var routed = regexp.MustCompile(`(?m)^RMSG [^\r\n]* (\d+)\r\n`)

// keeps returns the number of held messages of the most common size. Messages with numbers all have
// one size, and heartbeats another.
func (l *line) keeps() (most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sizes := map[string]int{}
	for _, m := range routed.FindAllSubmatch(l.kept, -1) {
		sizes[string(m[1])]++
		most = max(most, sizes[string(m[1])])
	}
	return most
}

// pass forwards data in order while nothing is held back.
func (l *line) pass(to, from net.Conn) {
	var queue [][]byte
	ended := false
	go func() {
		for {
			b := make([]byte, 64<<10)
			n, err := from.Read(b)
			l.mu.Lock()
			queue, ended = append(queue, b[:n]), err != nil
			if l.held {
				l.kept = append(l.kept, b[:n]...)
			}
			l.wake.Broadcast()
			l.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	for {
		l.mu.Lock()
		for l.held || len(queue) == 0 && !ended {
			l.wake.Wait()
		}
		send, end := queue, ended
		queue = nil
		l.mu.Unlock()
		for _, b := range send {
			_, _ = to.Write(b)
		}
		if end {
			_ = to.Close()
			return
		}
	}
}

func (l *line) back(to, from net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			_, _ = to.Write(b[:n])
		}
		if err != nil {
			return // pass ends the other direction of from
		}
	}
}

// lined is three servers whose routes run through lines: lines[i][k] from server i to server k,
// where k < i.
type lined struct {
	servers [3]*server.Server
	lines   [3][3]*line
}

func linedNodes(t *testing.T) *lined {
	t.Helper()
	n := &lined{}
	var ports [3]string
	for i := range n.servers {
		ports[i] = parts.FreeAddress(t)
		o := server.Options{ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT}
		at := netip.MustParseAddrPort(ports[i])
		o.Cluster.Name, o.Cluster.Host, o.Cluster.Port = "test", "127.0.0.1", int(at.Port())
		o.Cluster.Advertise, o.Cluster.NoAdvertise = "127.0.0.1:1", true // no routes except the lines, and no servers except the configured ones
		for k := range i {
			n.lines[i][k] = newLine(t, ports[k])
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: n.lines[i][k].addr})
		}
		n.servers[i] = serve(t, o)
		testkit.Eventually(t, func() string {
			for k := range i + 1 {
				if got, want := n.servers[k].NumRoutes(), i*server.DEFAULT_ROUTE_POOL_SIZE; got < want {
					return fmt.Sprintf("server %d has %d routes, not %d", k, got, want)
				}
			}
			return ""
		})
	}
	return n
}

// numbers is the handler of a bus whose frames contain numbers.
type numbers struct {
	mu      sync.Mutex
	members map[string]bool
	got     map[uint64]int
	last    uint64
	late    int // arrived after a larger one
}

func (h *numbers) Members(ms []cluster.Member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.members = map[string]bool{}
	for _, m := range ms {
		h.members[m.ID] = true
	}
}

func (h *numbers) Link(string, bool) {}

func (h *numbers) Receive(_ string, frame []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := binary.LittleEndian.Uint64(frame)
	h.got[n]++
	if n < h.last {
		h.late++
	}
	h.last = max(h.last, n)
}

// has returns which of the numbers up to n are missing or duplicated, or "".
func (h *numbers) has(n uint64) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := uint64(1); i <= n; i++ {
		if h.got[i] != 1 {
			return fmt.Sprintf("%d came %d times", i, h.got[i])
		}
	}
	return ""
}

// way is a bus that sends numbers to another.
type way struct {
	*natsbus.Bus
	numbers
	self cluster.Member
	said uint64
}

func newWay(t *testing.T, name string, servers ...*server.Server) *way {
	t.Helper()
	w := &way{self: cluster.NewMember(name, "test"), numbers: numbers{got: map[uint64]int{}}}
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	var err error
	if w.Bus, err = natsbus.New(natsbus.Options{Self: w.self, URLs: urls, Group: "test", Keys: [][]byte{keyA}, Heartbeat: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	if err := w.Open(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// say sends the next numbers to the given members.
func (w *way) say(numbers int, to ...string) {
	for range numbers {
		w.said++
		w.Send(cluster.Envelope{To: to, Frame: binary.LittleEndian.AppendUint64(nil, w.said)})
	}
}

// at returns the server that a bus is connected to.
func (n *lined) at(w *way) int {
	for i, s := range n.servers {
		if w.Status().Advertised == s.ClientURL() {
			return i
		}
	}
	return -1
}

// know waits until the buses list each other.
func know(t *testing.T, ways ...*way) {
	t.Helper()
	testkit.Eventually(t, func() string {
		for _, w := range ways {
			for _, o := range ways {
				w.mu.Lock()
				knows := w.members[o.self.ID]
				w.mu.Unlock()
				if w != o && !knows {
					return w.self.Name + " does not know " + o.self.Name
				}
			}
		}
		return ""
	})
}

// refusals returns the refusals of a bus, except those of new members before their proof.
func (w *way) refusals() map[string]uint64 {
	r := w.Status().Refused
	maps.DeleteFunc(r, func(reason string, _ uint64) bool { return reason == "unproven" })
	return r
}

// TestRouteDies: a server is lost while messages that it should route are in transit. Messages
// overtaken by later ones on another route are still accepted, once, and raise no suspicion.
func TestRouteDies(t *testing.T) {
	n := linedNodes(t)
	a, d := newWay(t, "a", n.servers[1], n.servers[2]), newWay(t, "d", n.servers[0])
	know(t, a, d)
	a.say(100)
	a.say(100, d.self.ID)
	testkit.Eventually(t, func() string { return d.has(200) })

	from := n.at(a)
	route := n.lines[from][0]
	route.hold(true)
	a.say(100)
	a.say(100, d.self.ID)
	testkit.Eventually(t, func() string {
		if kept := route.keeps(); kept < 200 {
			return fmt.Sprintf("%d messages are on their way", kept)
		}
		return ""
	})
	n.servers[from].Shutdown()
	n.servers[from].WaitForShutdown()
	testkit.Eventually(t, func() string {
		if n.at(a) == from || a.Status().Disconnected {
			return "a has no other server"
		}
		return ""
	})
	a.say(100)
	a.say(100, d.self.ID)
	testkit.Eventually(t, func() string {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.last != a.said {
			return fmt.Sprintf("d has %d of %d", d.last, a.said)
		}
		return ""
	})
	if d.has(400) == "" {
		t.Fatal("no message was held back")
	}
	route.hold(false)
	testkit.Eventually(t, func() string { return d.has(a.said) })
	if d.late == 0 || len(d.refusals()) > 0 {
		t.Errorf("%d arrived late; refusals: %v", d.late, d.refusals())
	}
}

// TestTwoWays: a client reconnects to a server to which messages it has already received are still
// in transit. The duplicates are rejected and counted; no other message is.
func TestTwoWays(t *testing.T) {
	n := linedNodes(t)
	a, d := newWay(t, "a", n.servers[2]), newWay(t, "d", n.servers[0], n.servers[1])
	first := n.at(d)
	other := 1 - first
	b := newWay(t, "b", n.servers[other])
	know(t, a, b, d)
	route := n.lines[2][other]
	route.hold(true)
	a.say(100)
	testkit.Eventually(t, func() string { return d.has(100) })
	n.servers[first].Shutdown()
	n.servers[first].WaitForShutdown()
	b.said = 1 << 20
	testkit.Eventually(t, func() string { // until d is subscribed at b's server
		b.say(1)
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.last <= 1<<20 {
			return "d does not hear b"
		}
		return ""
	})
	if b.has(100) == "" {
		t.Fatal("no message was held back")
	}
	route.hold(false)
	testkit.Eventually(t, func() string { return b.has(100) })
	testkit.Eventually(t, func() string {
		if r := d.refusals(); r["repeated"] < 100 || len(r) != 1 {
			return fmt.Sprintf("refused: %v", r)
		}
		return d.has(100)
	})
	if r := b.refusals(); len(r) > 0 {
		t.Errorf("b refused %v", r)
	}
}
