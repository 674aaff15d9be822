package budget

import (
	"container/list"
	"net"
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

// connMemory is what a connection may take that says nothing after its handshake, and
// connParts the part of the memory, one in so many, that all of them may take.
const (
	connMemory = 64 << 10
	connParts  = 4
)

// Listeners bound the connections of all listeners of the process by its file
// descriptors and its memory, and count those that were closed. A nil *Listeners
// bounds nothing.
type Listeners struct {
	most   int
	closed *prometheus.CounterVec
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
	}, []string{"listener", "reason"})}
	if r != nil {
		r.MustRegister(ls.closed)
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

// Limit bounds a listener to one part in parts of the connections that the process
// can hold. Who connects and says nothing is cut off.
func (ls *Listeners) Limit(name string, parts int, l net.Listener) net.Listener {
	if ls == nil {
		return l
	}
	return Limit(l, ls.options(name, parts))
}

// LimitShort is Limit for listeners whose clients stay for a moment, as checks of health do:
// room for who connects is made by closing the oldest connection, so that nobody keeps
// others out by staying.
func (ls *Listeners) LimitShort(name string, parts int, l net.Listener) net.Listener {
	if ls == nil {
		return l
	}
	o := ls.options(name, parts)
	o.Short = true
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
	Connections int           // at a time; more are closed at once. 0 = no bound
	Short       bool          // where there are more, the oldest is closed instead
	FirstByte   time.Duration // for the first byte of a connection; 0 = no bound
	// Refused counts connections that were closed for being too many, Silent those
	// that said nothing. Either may be nil.
	Refused, Silent func()
}

// Limit bounds the connections that l accepts.
func Limit(l net.Listener, o ListenOptions) net.Listener { return &listener{Listener: l, o: o} }

type listener struct {
	net.Listener
	o    ListenOptions
	open atomic.Int64

	mu  sync.Mutex
	age list.List // of *conn, the oldest first; of Short ones
}

// Accept returns the next connection within the bounds.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if n := l.open.Add(1); l.o.Connections > 0 && n > int64(l.o.Connections) {
			count(l.o.Refused)
			if !l.o.Short {
				l.open.Add(-1)
				c.Close()
				continue
			}
			l.closeOldest()
		}
		out := &conn{Conn: c, l: l}
		if l.o.Short {
			l.mu.Lock()
			out.place = l.age.PushBack(out)
			l.mu.Unlock()
		}
		if l.o.FirstByte > 0 {
			out.silent = time.AfterFunc(never, func() {
				count(l.o.Silent)
				out.Close()
			})
			out.silent.Reset(l.o.FirstByte) // once out is complete
		}
		return out, nil
	}
}

func (l *listener) closeOldest() {
	l.mu.Lock()
	oldest := l.age.Front()
	l.mu.Unlock()
	if oldest != nil {
		oldest.Value.(*conn).Close()
	}
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
	silent *time.Timer   // nil when there is no bound
	place  *list.Element // by age; nil where that does not matter
	spoke  atomic.Bool
	closed sync.Once
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
	c.closed.Do(func() {
		c.l.open.Add(-1)
		if c.place != nil {
			c.l.mu.Lock()
			c.l.age.Remove(c.place)
			c.l.mu.Unlock()
		}
	})
	if c.silent != nil {
		c.silent.Stop()
	}
	return c.Conn.Close()
}
