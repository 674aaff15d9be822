package budget

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// TestNoListeners: a nil *Listeners limits nothing.
func TestNoListeners(t *testing.T) {
	var none *Listeners
	plain := &scripted{}
	for name, l := range map[string]net.Listener{
		"Limit": none.Limit("x", 2, plain), "LimitRequests": none.LimitRequests("x", 2, plain), "LimitShort": none.LimitShort("x", 2, plain),
	} {
		if l != net.Listener(plain) {
			t.Errorf("%s of no Listeners returns another listener", name)
		}
	}
	if n := none.Part(2); n != 0 {
		t.Errorf("no Listeners give %d connections, want 0 for no limit", n)
	}
}

// TestKindsOfLimits: each kind of listener has its part of the connections, and those with one request at a
// time have small kernel buffers.
func TestKindsOfLimits(t *testing.T) {
	registry := prometheus.NewRegistry()
	ls := NewListenersOf(100, nil, registry)
	for name, c := range map[string]struct {
		l       net.Listener
		short   bool
		buffers int
	}{
		"Limit":         {ls.Limit("x", 2, nil), false, 0},
		"LimitRequests": {ls.LimitRequests("x", 2, nil), false, connMemory},
		"LimitShort":    {ls.LimitShort("x", 2, nil), true, connMemory},
	} {
		o := c.l.(*listener).o
		if o.Connections != 50 || o.Short != c.short || o.Buffers != c.buffers || o.FirstByte != firstByte {
			t.Errorf("%s has the options %+v", name, o)
		}
		o.Refused()
		o.Silent()
	}
	if n, err := testutil.GatherAndCount(registry, "grapevine_connections_closed_total"); err != nil || n != 2 {
		t.Errorf("%d series of closed connections, %v, want 2", n, err)
	}
	if n := NewListenersOf(100, nil, nil).Part(1000); n != 4 {
		t.Errorf("the smallest part is %d connections, want 4", n)
	}
}

// piped is a listener with one connection, whose other end is kept.
type piped struct {
	net.Listener
	other net.Conn
}

func (p *piped) Accept() (own net.Conn, err error) {
	own, p.other = net.Pipe()
	return own, nil
}

// TestSilentConnections: a connection without a first byte is closed in time, also after failed reads. One
// that has sent a byte, or that was closed before, does not count as silent.
func TestSilentConnections(t *testing.T) {
	const limit = time.Second
	for _, c := range []struct {
		name   string
		use    func(t *testing.T, c, other net.Conn)
		silent int
	}{
		{"nothing sent", func(*testing.T, net.Conn, net.Conn) {}, 1},
		{"a read that timed out", func(t *testing.T, c, _ net.Conn) {
			_ = c.SetReadDeadline(time.Now().Add(limit / 4))
			if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("Read() = %d, %v, want a timeout", n, err)
			}
		}, 1},
		{"a byte sent", func(t *testing.T, c, other net.Conn) {
			go func() { _, _ = other.Write([]byte("x")) }()
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
		}, 0},
		{"closed before", func(_ *testing.T, c, _ net.Conn) { _ = c.Close() }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				silent := 0
				p := &piped{}
				conn, err := Limit(p, ListenOptions{FirstByte: limit, Silent: func() { silent++ }}).Accept()
				if err != nil {
					t.Fatal(err)
				}
				c.use(t, conn, p.other)
				time.Sleep(2 * limit)
				synctest.Wait()
				if silent != c.silent {
					t.Errorf("%d silent connections, want %d", silent, c.silent)
				}
				_ = conn.Close()
				_ = p.other.Close()
			})
		})
	}
}

// TestNoTimeLimit: a connection without a time limit for its first byte can be read and closed.
func TestNoTimeLimit(t *testing.T) {
	p := &piped{}
	conn, err := Limit(p, ListenOptions{}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer p.other.Close()
	go func() { _, _ = p.other.Write([]byte("x")) }()
	if n, err := conn.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("Read() = %d, %v, want one byte", n, err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// TestFiles: some descriptors are left for other uses, and no limit is as good as a high one.
func TestFiles(t *testing.T) {
	for limit, want := range map[uint64]int{
		0: 8, 64: 8, reservedFiles + 8: 8, reservedFiles + 9: 9, 1024: 1024 - reservedFiles,
		mostFiles: mostFiles - reservedFiles, mostFiles + 1: mostFiles, 1<<64 - 1: mostFiles,
	} {
		if got := filesOf(limit); got != want {
			t.Errorf("%d descriptors for connections of a limit of %d, want %d", got, limit, want)
		}
	}
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		t.Fatal(err)
	}
	if got, want := Files(), filesOf(r.Cur); got != want {
		t.Errorf("Files() = %d, want %d for the limit of %d", got, want, r.Cur)
	}
}

// TestKernelBuffers: buffers are set only for listeners with such a limit.
func TestKernelBuffers(t *testing.T) {
	size := func(o ListenOptions) (n int) {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer lis.Close()
		client, err := net.Dial("tcp", lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		c, err := Limit(lis, o).Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		raw, err := c.(*conn).Conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) { n, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF) }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	plain, small := size(ListenOptions{}), size(ListenOptions{Buffers: connMemory})
	if small > 2*connMemory || plain <= small {
		t.Errorf("send buffers of %d bytes without a limit and %d with one of %d", plain, small, connMemory)
	}
}
