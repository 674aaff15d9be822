package wan

import (
	"io"
	"net"
	"sync"
	"time"
)

// Wire forwards TCP connections to an address until it is cut.
type Wire struct {
	addr  string
	to    func() string
	delay time.Duration
	wg    sync.WaitGroup

	mu    sync.Mutex
	lis   net.Listener // nil while cut
	conns map[net.Conn]bool
}

// Open listens at an address ("127.0.0.1:0" for any port). It forwards each connection to the
// address that to returns at that moment, and delays all bytes by delay in each direction.
func Open(addr string, to func() string, delay time.Duration) (*Wire, error) {
	w := &Wire{addr: addr, to: to, delay: delay, conns: map[net.Conn]bool{}}
	if err := w.Heal(); err != nil {
		return nil, err
	}
	return w, nil
}

// Addr returns the listening address, which stays the same after a cut.
func (w *Wire) Addr() string { return w.addr }

// Heal listens again at the address that the wire had before the cut.
func (w *Wire) Heal() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lis != nil {
		return nil
	}
	lis, err := net.Listen("tcp", w.addr)
	if err != nil {
		return err
	}
	w.lis, w.addr = lis, lis.Addr().String()
	w.wg.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			w.wg.Go(func() { w.carry(lis, c) })
		}
	})
	return nil
}

// Cut closes open connections and refuses new ones.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lis != nil {
		_ = w.lis.Close()
		w.lis = nil
	}
	for c := range w.conns {
		_ = c.Close()
	}
	clear(w.conns)
}

// Close cuts the wire and waits until its goroutines have ended.
func (w *Wire) Close() {
	w.Cut()
	w.wg.Wait()
}

// enter registers connections that a cut must close. It returns false if lis has already been cut.
func (w *Wire) enter(lis net.Listener, conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lis != lis {
		return false
	}
	for _, c := range conns {
		w.conns[c] = true
	}
	return true
}

func (w *Wire) carry(lis net.Listener, c net.Conn) {
	defer c.Close()
	there, err := net.Dial("tcp", w.to())
	if err != nil {
		return
	}
	defer there.Close()
	if !w.enter(lis, c, there) {
		return
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.conns, c)
		delete(w.conns, there)
	}()
	var both sync.WaitGroup
	both.Go(func() { w.copy(there, c) })
	both.Go(func() { w.copy(c, there) })
	both.Wait()
}

// late is a piece of data with its arrival time.
type late struct {
	at time.Time
	b  []byte
}

// Maximum number of pieces in flight, and maximum bytes per piece.
const (
	flying = 256
	piece  = 64 << 10
)

// copy forwards from one connection to the other until either ends, then closes both.
func (w *Wire) copy(to, from net.Conn) {
	defer from.Close()
	defer to.Close()
	if w.delay <= 0 {
		_, _ = io.Copy(to, from)
		return
	}
	way := make(chan late, flying)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer from.Close()
	reader.Go(func() {
		defer close(way)
		for {
			b := make([]byte, piece)
			n, err := from.Read(b)
			if n > 0 {
				way <- late{time.Now().Add(w.delay), b[:n]}
			}
			if err != nil {
				return
			}
		}
	})
	for l := range way {
		time.Sleep(time.Until(l.at))
		if _, err := to.Write(l.b); err != nil {
			_ = from.Close()
			for range way { // unblocks the reader
			}
			return
		}
	}
}
