package budget

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// scripted is a listener with connections from a list of addresses. It ends with the list.
type scripted struct {
	net.Listener
	from []string
	all  []*inert
}

func (s *scripted) Accept() (net.Conn, error) {
	n := len(s.all)
	if n == len(s.from) {
		return nil, net.ErrClosed
	}
	s.all = append(s.all, &inert{at: s.from[n]})
	return s.all[n], nil
}

// inert is a connection that records its address and whether it was closed.
type inert struct {
	net.Conn
	at     string
	closed bool
}

func (c *inert) RemoteAddr() net.Addr {
	ip, err := netip.ParseAddr(c.at)
	if err != nil {
		return &net.UnixAddr{Name: c.at}
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 1))
}

func (c *inert) Close() error {
	c.closed = true
	return nil
}

// TestFairConnections: addresses connect in turn to listeners with a limit of three. The address
// with the most connections loses one. Remaining connections are identified by their position.
func TestFairConnections(t *testing.T) {
	for _, c := range []struct {
		name  string
		short bool
		from  string // addresses, in order
		left  string // 1 for each connection open at the end
	}{
		{"one address keeps what it has", false, "10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1", "1110"},
		{"another one gets in, the newest gives way", false, "10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.2", "1101"},
		{"and once more, until all have as many", false, "10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4", "100110"},
		{"who has more gets no more", false, "10.0.0.1 10.0.0.2 10.0.0.2 10.0.0.2", "1110"},
		{"addresses of a network of IPv6 are one", false, "fd00::1 fd00::2 fd00::3 fd00:0:0:1::1", "1101"},
		{"addresses of IPv4 are what they are, however they are written", false, "10.0.0.1 ::ffff:10.0.0.1 10.0.0.1 ::ffff:10.0.0.2", "1101"},
		{"clients of a socket file are one", false, "@ @ @ @ 10.0.0.1", "11001"},
		{"short: the oldest gives way", true, "10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.1", "0111"},
		{"short: of the address with the most", true, "10.0.0.1 10.0.0.2 10.0.0.2 10.0.0.2 10.0.0.2", "10011"},
		{"short: addresses that stay keep nobody out", true, "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5", "00111"},
	} {
		refused := 0
		script := &scripted{from: strings.Fields(c.from)}
		l := Limit(script, ListenOptions{Connections: 3, Short: c.short, Refused: func() { refused++ }})
		var taken []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			taken = append(taken, conn)
		}
		left := ""
		for _, conn := range script.all {
			if conn.closed {
				left += "0"
			} else {
				left += "1"
			}
		}
		if left != c.left || refused != strings.Count(left, "0") {
			t.Errorf("%s: open connections %s, want %s; %d closed", c.name, left, c.left, refused)
		}
		for _, conn := range taken {
			conn.Close()
			conn.Close() // counts once
		}
		if in := l.(*listener); in.open != 0 || len(in.from) != 0 {
			t.Errorf("%s: %d connections from %d addresses left", c.name, in.open, len(in.from))
		}
	}
}

// TestPacedConnectionsAreCounted: listeners count paced connections. A nil *Listeners does not.
func TestPacedConnectionsAreCounted(t *testing.T) {
	ls := NewListenersOf(8, nil, nil)
	ls.Paced("grpc")
	if n := testutil.ToFloat64(ls.paced.WithLabelValues("grpc")); n != 1 {
		t.Errorf("%g paced connections are counted, want 1", n)
	}
	var none *Listeners
	none.Paced("grpc")
}

// TestUnreadIsBounded: kernel buffers for unread data do not grow with the traffic on connections
// that carry one request at a time.
func TestUnreadIsBounded(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := NewListeners(New(512<<20), nil).LimitRequests("x", 2, lis)
	defer l.Close()
	const much = 256 << 20
	go func() {
		c, err := net.Dial("tcp", lis.Addr().String())
		if err != nil {
			return
		}
		defer c.Close()
		for piece, n := make([]byte, 1<<20), 0; err == nil && n < much; n += len(piece) {
			_, err = c.Write(piece)
		}
		_, _ = io.Copy(io.Discard, c)
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.CopyN(io.Discard, c, much); err != nil { // looks like a fast reader
		t.Fatal(err)
	}
	for piece, n := make([]byte, 1<<20), 0; n < much; n += len(piece) { // and like a fast writer
		if _, err := c.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := c.(*conn).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for way, option := range map[string]int{"that come": syscall.SO_RCVBUF, "that go": syscall.SO_SNDBUF} {
		var room int
		if cerr := raw.Control(func(fd uintptr) { room, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, option) }); cerr != nil || err != nil {
			t.Fatal(cerr, err)
		}
		if room > 2*connMemory { // the kernel doubles the size for its own overhead
			t.Errorf("kernel buffers hold up to %d KiB %s", room>>10, way)
		}
	}
}
