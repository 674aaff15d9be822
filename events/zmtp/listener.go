package zmtp

import (
	"errors"
	"net"
	"sync"
	"time"
)

// listener accepts connections, performs the handshake and serves each on its own goroutine until
// it is closed.
type listener struct {
	ln        net.Listener
	self      SocketType
	handshake time.Duration
	limits    Limits
	maxConns  int
	admit     func(net.Addr) bool          // nil: admits all
	left      func(net.Addr)               // called for each admitted connection; nil if admit is
	serve     func(nc net.Conn, r *reader) // returns when the connection has ended

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
	wg     sync.WaitGroup
}

func listen(addr string, l *listener) error {
	network, address := splitEndpoint(addr)
	ln, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	l.ln, l.conns = ln, make(map[net.Conn]struct{})
	if l.handshake <= 0 {
		l.handshake = 3 * time.Second
	}
	if l.maxConns <= 0 {
		l.maxConns = 4096
	}
	l.limits = l.limits.withDefaults()
	l.wg.Add(1)
	go l.accept()
	return nil
}

func (l *listener) accept() {
	defer l.wg.Done()
	for {
		nc, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, or the peer disconnected before accept
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if l.admit != nil && !l.admit(nc.RemoteAddr()) {
			_ = nc.Close()
			continue
		}
		if !l.add(nc) {
			l.gone(nc)
			continue
		}
		go l.run(nc)
	}
}

// add registers nc and reports whether it is within the limit.
func (l *listener) add(nc net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.conns) >= l.maxConns {
		return false
	}
	l.conns[nc] = struct{}{}
	l.wg.Add(1)
	return true
}

func (l *listener) run(nc net.Conn) {
	defer l.wg.Done()
	defer func() {
		l.mu.Lock()
		delete(l.conns, nc)
		l.mu.Unlock()
		l.gone(nc)
	}()
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive)
	}
	r := newReader(nc, l.limits)
	if _, err := handshake(nc, r, l.self, l.handshake); err != nil {
		return
	}
	l.serve(nc, r)
}

// gone closes an admitted connection.
func (l *listener) gone(nc net.Conn) {
	from := nc.RemoteAddr()
	_ = nc.Close()
	if l.left != nil {
		l.left(from)
	}
}

// close stops accepting, closes every connection and waits for their
// goroutines.
func (l *listener) close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	for nc := range l.conns {
		_ = nc.Close()
	}
	l.mu.Unlock()
	err := l.ln.Close()
	l.wg.Wait()
	return err
}
