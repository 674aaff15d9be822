package gossip

import (
	"fmt"
	"log"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Limits for connections to the gossip port that carry memberlist streams. A state takes a few
// hundred bytes per member and is exchanged within memberlist's TCPTimeout.
const (
	maxStreamBytes = 1 << 20
	streamConns    = 64
)

// boundedTransport limits memberlist's transport, which accepts any number of connections of any
// length. It closes connections beyond the limits.
type boundedTransport struct {
	*memberlist.NetTransport
	streams chan net.Conn
	done    chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
	open    atomic.Int64
	refused func()
}

// newNetTransport binds host and port for UDP and TCP. It calls refused for each connection above
// the limit.
func newNetTransport(host string, port int, logger *log.Logger, refused func()) (*boundedTransport, error) {
	var nt *memberlist.NetTransport
	var err error
	for try := 0; try < 10; try++ { // a free TCP port may be in use for UDP
		nt, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{host}, BindPort: port, Logger: logger})
		if err == nil || port != 0 {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	t := &boundedTransport{NetTransport: nt, streams: make(chan net.Conn), done: make(chan struct{}), refused: refused}
	t.wg.Go(t.sift)
	return t, nil
}

// sift passes on the connections within the limit.
func (t *boundedTransport) sift() {
	for {
		select {
		case <-t.done:
			return
		case c := <-t.NetTransport.StreamCh():
			if t.open.Add(1) > streamConns {
				t.open.Add(-1)
				t.refused()
				_ = c.Close()
				continue
			}
			select {
			case t.streams <- &boundedConn{Conn: c, left: maxStreamBytes, closed: func() { t.open.Add(-1) }}:
			case <-t.done:
				_ = c.Close()
				return
			}
		}
	}
}

// StreamCh returns incoming streams.
func (t *boundedTransport) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown closes the listeners and waits.
func (t *boundedTransport) Shutdown() error {
	err := t.NetTransport.Shutdown()
	t.once.Do(func() { close(t.done) })
	t.wg.Wait()
	return err
}

// boundedConn is a connection with a limit on the bytes read. One goroutine reads.
type boundedConn struct {
	net.Conn
	left   int
	once   sync.Once
	closed func()
}

// Read reads up to the limit.
func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("gossip: connection exceeds %d bytes", maxStreamBytes)
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

// silentFor is the time limit for the first byte of a new connection.
const silentFor = 5 * time.Second
