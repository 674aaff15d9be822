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

// reservedFiles are the file descriptors that no listener's connections take:
// files, engines, and the administration listener live on them.
const reservedFiles = 96

// Files returns how many file descriptors the connections of all listeners may
// take together, by the process's limit.
func Files() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil || r.Cur > 1<<20 {
		return 1 << 20
	}
	return max(int(r.Cur)-reservedFiles, 8)
}

// firstByte bounds the wait for the first byte of a connection.
const firstByte = 10 * time.Second

// connMemory is what a connection may take that says nothing after its handshake, and what is on
// its way each way, and
// connParts the part of the memory, one in so many, that all of them may take.
const (
	connMemory = 64 << 10
	connParts  = 4
)

// Listeners bound the connections of all listeners of the process by its file
// descriptors and its memory, and count those that were closed. A nil *Listeners
// bounds nothing.
type Listeners struct {
	most          int
	closed, paced *prometheus.CounterVec
}

// NewListeners returns Listeners for the process's limits of files and, unless b is
// nil, of memory. r takes the metric; nil leaves it unregistered.
func NewListeners(b *Budget, r prometheus.Registerer) *Listeners {
	most := Files()
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

// Part returns one part in parts of the connections that the process can hold, 0 for a
// nil Listeners.
func (ls *Listeners) Part(parts int) int {
	if ls == nil {
		return 0
	}
	return max(ls.most/parts, 4)
}

// Paced counts a connection of a listener that is made to wait.
func (ls *Listeners) Paced(name string) {
	if ls != nil {
		ls.paced.WithLabelValues(name).Inc()
	}
}

// Limit bounds a listener to one part in parts of the connections that the process
// can hold. Who connects and says nothing is cut off. Where there are more, the address with
// the most of them gives one up: nobody who has but one keeps others out, or is kept out.
func (ls *Listeners) Limit(name string, parts int, l net.Listener) net.Listener {
	if ls == nil {
		return l
	}
	return Limit(l, ls.options(name, parts))
}

// LimitRequests is Limit for listeners whose connections carry one request at a time. What has
// come of it and was not read yet is bounded too, and what of its answer the other side has not
// taken: the system would let both grow to megabytes for each connection, while the processors
// are busy or nobody reads, and counts them as the process's.
func (ls *Listeners) LimitRequests(name string, parts int, l net.Listener) net.Listener {
	if ls == nil {
		return l
	}
	o := ls.options(name, parts)
	o.Buffers = connMemory
	return Limit(l, o)
}

// LimitShort is LimitRequests for listeners whose clients stay for a moment, as checks of health do:
// room for who connects is made in any case, by closing the oldest connection of the address
// with the most, so that nobody keeps others out by staying.
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

// ListenOptions bound the connections of a listener.
type ListenOptions struct {
	// Connections at a time; 0 = no bound. Beyond it the address that has the most is
	// closed its newest one, or the one that comes where no address has more than its own.
	Connections int
	Short       bool          // where there are more, one is always closed for who comes, the oldest
	FirstByte   time.Duration // for the first byte of a connection; 0 = no bound
	Buffers     int           // bytes of a connection that the system holds each way, about; 0 = as many as it likes
	// Refused counts connections that were closed for being too many, Silent those
	// that said nothing. Either may be nil.
	Refused, Silent func()
}

// Limit bounds the connections that l accepts.
func Limit(l net.Listener, o ListenOptions) net.Listener {
	return &listener{Listener: l, o: o, from: map[netip.Addr]*origin{}}
}

type listener struct {
	net.Listener
	o ListenOptions

	mu   sync.Mutex
	open int
	next uint64                 // number of the next connection
	from map[netip.Addr]*origin // who has connections
}

// origin is where connections come from: an address, or the network of one of IPv6, of which
// a machine has as many as it likes.
type origin struct {
	at  netip.Addr
	age list.List // of *conn, the oldest first
}

func (o *origin) oldest() *conn { return o.age.Front().Value.(*conn) }

func originOf(c net.Conn) netip.Addr {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{} // a socket file: all of them are one
	}
	ip := at.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip
	}
	p, _ := ip.Prefix(64) // of an address of IPv6 there is one
	return p.Addr()
}

// Accept returns the next connection within the bounds.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tcp, ok := c.(*net.TCPConn); ok && l.o.Buffers > 0 {
			_ = tcp.SetReadBuffer(l.o.Buffers) // wishes, not needs
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

// enter counts a connection, and returns the one that must be closed for it, which may be
// itself; nil where there is room.
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
	l.leave(over) // the next one that comes must not wait for its end
	return over
}

// leave forgets a connection, once. l is locked.
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
	silent *time.Timer // nil when there is no bound
	origin *origin
	number uint64
	place  *list.Element // among those of its origin; nil once it does not count. Guarded by l.mu
	spoke  atomic.Bool
}

// Read reads, and ends the wait for the first byte.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.silent != nil && !c.spoke.Swap(true) {
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
