package budget

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reservedFiles are the file descriptors reserved for files, engines and the administration
// listener.
const reservedFiles = 96

// Files returns how many file descriptors all listeners' connections may use together.
func Files() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return mostFiles
	}
	return filesOf(r.Cur)
}

// mostFiles is used for all listeners if the process has no limit, or a higher one.
const mostFiles = 1 << 20

// filesOf returns Files for a limit of the process.
func filesOf(limit uint64) int {
	if limit > mostFiles {
		return mostFiles
	}
	return max(int(limit)-reservedFiles, 8)
}

// firstByte is the time limit for the first byte of a connection.
const firstByte = 10 * time.Second

// connMemory is the memory of an idle connection after its handshake, including buffered data in
// both directions. connParts: one part in this many of the memory is for all connections.
const (
	connMemory = 64 << 10
	connParts  = 4
)

// Listeners limit the connections of all of the process's listeners by file descriptors and memory,
// and count closed ones. A nil *Listeners has no limit.
type Listeners struct {
	most          int
	closed, paced *prometheus.CounterVec
}

// NewListeners returns Listeners for the process's file limit and, unless b is nil, its memory. r
// registers the metrics; it may be nil.
func NewListeners(b *Budget, r prometheus.Registerer) *Listeners {
	return NewListenersOf(Files(), b, r)
}

// NewListenersOf is NewListeners with a number of file descriptors, for one of several pools.
func NewListenersOf(files int, b *Budget, r prometheus.Registerer) *Listeners {
	most := files
	if limit := b.Limit(); limit > 0 {
		most = int(min(int64(most), limit/connParts/connMemory))
	}
	ls := &Listeners{most: most, closed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "grapevine_connections_closed_total",
		Help: "Connections that a listener closed because there were too many or because they stayed silent.",
	}, []string{"listener", "reason"}), paced: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "grapevine_connections_paced_total",
		Help: "Connections that a listener had wait because they ended streams that had said nothing.",
	}, []string{"listener"})}
	if r != nil {
		r.MustRegister(ls.closed, ls.paced)
	}
	return ls
}

// Part returns one part in parts of the maximum number of connections, 0 for a nil Listeners.
func (ls *Listeners) Part(parts int) int {
	if ls == nil {
		return 0
	}
	return max(ls.most/parts, 4)
}

// Paced counts a paced connection of a listener.
func (ls *Listeners) Paced(name string) {
	if ls != nil {
		ls.paced.WithLabelValues(name).Inc()
	}
}

// Limit limits a listener to one part in parts of the maximum number of connections, and closes
// silent connections. Above the limit, the address with the most connections loses one. So an
// address with one connection neither blocks others nor is blocked.
func (ls *Listeners) Limit(name string, parts int, l net.Listener) net.Listener {
	if ls == nil {
		return l
	}
	return Limit(l, ls.options(name, parts))
}

// LimitRequests is Limit for listeners whose connections carry one request at a time. It also
// limits the kernel's buffers for unread requests and unsent responses. The kernel would let both
// grow to megabytes per connection while the CPUs are busy or the client does not read, and counts
// them as the process's memory.
func (ls *Listeners) LimitRequests(name string, parts int, l net.Listener) net.Listener {
	if ls == nil {
		return l
	}
	o := ls.options(name, parts)
	o.Buffers = connMemory
	return Limit(l, o)
}

// LimitShort is LimitRequests for listeners with short connections, such as health checks. A new
// connection is always accepted; at the limit, the oldest connection of the address with the most
// connections is closed.
func (ls *Listeners) LimitShort(name string, parts int, l net.Listener) net.Listener {
	if ls == nil {
		return l
	}
	o := ls.options(name, parts)
	o.Short, o.Buffers = true, connMemory
	return Limit(l, o)
}

func (ls *Listeners) options(name string, parts int) ListenOptions {
	return ListenOptions{
		Connections: ls.Part(parts), FirstByte: firstByte,
		Refused: ls.closed.WithLabelValues(name, "many").Inc, Silent: ls.closed.WithLabelValues(name, "silent").Inc,
	}
}

const never = time.Duration(1<<63 - 1)

// ListenOptions limit a listener's connections.
type ListenOptions struct {
	// Connections is the maximum; 0: unlimited. Above it, the newest connection of the address with
	// the most is closed, or the new connection if no address has more.
	Connections int
	Short       bool          // a new connection always displaces the oldest one
	FirstByte   time.Duration // time limit for a connection's first byte; 0: none
	Buffers     int           // approximate kernel buffer size per direction; 0: the system's default
	// Refused is called for connections closed because of the limit, Silent for silent ones. Either
	// may be nil.
	Refused, Silent func()
}

// Limit limits the connections that l accepts.
func Limit(l net.Listener, o ListenOptions) net.Listener {
	return &listener{Listener: l, o: o, from: map[netip.Addr]*origin{}}
}

type listener struct {
	net.Listener
	o ListenOptions

	mu   sync.Mutex
	open int
	next uint64                 // number of the next connection
	from map[netip.Addr]*origin // by origin
}

// origin is a source of connections: an IPv4 address, or an IPv6 /64 network, since a machine may
// have any number of addresses in it.
type origin struct {
	at  netip.Addr
	age list.List // of *conn, oldest first
}

func (o *origin) oldest() *conn { return o.age.Front().Value.(*conn) }

func originOf(c net.Conn) netip.Addr {
	at, _ := c.RemoteAddr().(*net.TCPAddr) // nil for a socket file, whose single origin is the zero address
	ip := at.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip
	}
	p, _ := ip.Prefix(64) // valid for any IPv6 address
	return p.Addr()
}

// Accept returns the next accepted connection.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tcp, ok := c.(*net.TCPConn); ok && l.o.Buffers > 0 {
			_ = tcp.SetReadBuffer(l.o.Buffers) // best effort
			_ = tcp.SetWriteBuffer(l.o.Buffers)
		}
		out := &conn{Conn: c, l: l}
		if l.o.FirstByte > 0 {
			out.silent = time.AfterFunc(never, func() {
				count(l.o.Silent)
				out.Close()
			})
		}
		if over := l.enter(out); over != nil {
			count(l.o.Refused)
			over.Close()
			if over == out {
				continue
			}
		}
		if out.silent != nil {
			out.silent.Reset(l.o.FirstByte) // once out is complete
		}
		return out, nil
	}
}

// enter counts a connection. If there is no room, it returns the connection to close, possibly c
// itself; otherwise nil.
func (l *listener) enter(c *conn) (over *conn) {
	at := originOf(c.Conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.from[at]
	if own == nil {
		own = &origin{at: at}
		l.from[at] = own
	}
	c.origin, c.place, c.number = own, own.age.PushBack(c), l.next
	l.next++
	if l.open++; l.o.Connections <= 0 || l.open <= l.o.Connections {
		return nil
	}
	most := own
	for _, o := range l.from {
		if n := o.age.Len() - most.age.Len(); n > 0 || n == 0 && l.o.Short && o.oldest().number < most.oldest().number {
			most = o
		}
	}
	switch {
	case l.o.Short:
		over = most.oldest()
	case most != own:
		over = most.age.Back().Value.(*conn)
	default:
		over = c
	}
	l.leave(over) // do not wait for its Close
	return over
}

// leave removes a connection, once. l is locked.
func (l *listener) leave(c *conn) {
	if c.place == nil {
		return
	}
	l.open--
	if c.origin.age.Remove(c.place); c.origin.age.Len() == 0 {
		delete(l.from, c.origin.at)
	}
	c.place = nil
}

func count(f func()) {
	if f != nil {
		f()
	}
}

// conn is a connection that counts until it is closed.
type conn struct {
	net.Conn
	l      *listener
	silent *time.Timer // nil without a time limit
	origin *origin
	number uint64
	place  *list.Element // in its origin's list; nil once it does not count; guarded by l.mu
	active atomic.Bool
}

// Read reads and stops the first-byte timer.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.silent != nil && !c.active.Swap(true) {
		c.silent.Stop()
	}
	return n, err
}

// Close closes the connection.
func (c *conn) Close() error {
	c.l.mu.Lock()
	c.l.leave(c)
	c.l.mu.Unlock()
	if c.silent != nil {
		c.silent.Stop()
	}
	return c.Conn.Close()
}
