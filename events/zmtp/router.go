package zmtp

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// RouterOptions configure a ROUTER socket.
type RouterOptions struct {
	Limits    Limits        // of requests; defaults as in Options, but 1 MiB
	Handshake time.Duration // bounds each peer's greeting; default 3 s
	Write     time.Duration // bounds one Send to a peer that does not read; default 10 s
	MaxConns  int           // default 4096
}

// Router is a bound ROUTER socket that hands each message to a handler
// together with the connection to answer on.
type Router struct {
	opt     RouterOptions
	l       *listener
	handler func(conn *RouterConn, frames [][]byte)
}

// RouterConn is one peer of a Router. It ends with its connection.
type RouterConn struct {
	nc    net.Conn
	write time.Duration
	mu    sync.Mutex
	buf   []byte
}

// ListenRouter binds a ROUTER socket to addr and calls handler for every message, one at a time per
// peer, from that peer's goroutine. The frames are as sent by the peer, so they include the empty
// delimiter of a DEALER or REQ, which also belongs at the head of the answer. They are valid until
// handler returns.
func ListenRouter(addr string, handler func(conn *RouterConn, frames [][]byte), opt RouterOptions) (*Router, error) {
	if opt.Write <= 0 {
		opt.Write = 10 * time.Second
	}
	if opt.Limits.Frame <= 0 {
		opt.Limits.Frame = 1 << 20
	}
	if opt.Limits.Message <= 0 {
		opt.Limits.Message = 1 << 20
	}
	r := &Router{opt: opt, handler: handler}
	r.l = &listener{
		self: ROUTER, handshake: opt.Handshake, limits: opt.Limits, maxConns: opt.MaxConns, serve: r.serve,
	}
	if err := listen(addr, r.l); err != nil {
		return nil, fmt.Errorf("zmtp: listen %s: %w", addr, err)
	}
	return r, nil
}

// Addr returns the bound address.
func (r *Router) Addr() net.Addr { return r.l.ln.Addr() }

// Close closes every connection and waits for handlers to return.
func (r *Router) Close() error { return r.l.close() }

func (r *Router) serve(nc net.Conn, rd *reader) {
	conn := &RouterConn{nc: nc, write: r.opt.Write}
	var m Message
	var frames [][]byte
	for rd.next(&m, conn.command) == nil {
		frames = m.AppendFrames(frames[:0])
		r.handler(conn, frames)
	}
}

// Send writes one message to the peer, waiting while it does not read. Unlike
// libzmq's ROUTER it drops nothing: it returns an error. Safe for concurrent
// use, also after the handler has returned.
func (c *RouterConn) Send(frames ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = appendMessage(c.buf[:0], frames)
	return c.flush()
}

// RemoteAddr returns the peer's address.
func (c *RouterConn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Close ends the connection to this peer.
func (c *RouterConn) Close() error { return c.nc.Close() }

// flush writes buf. The caller holds mu. A write that times out has cut a message in two, so it
// ends the connection.
func (c *RouterConn) flush() error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.write)); err != nil {
		return err
	}
	if _, err := c.nc.Write(c.buf); err != nil {
		_ = c.nc.Close()
		return err
	}
	if cap(c.buf) > keepBuffer {
		c.buf = nil
	}
	return nil
}

func (c *RouterConn) command(body []byte) error {
	name, data, err := splitCommand(body)
	if err != nil || name != cmdPing {
		return err
	}
	if len(data) < 2 {
		return ErrProtocol
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = appendPong(c.buf[:0], data)
	return c.flush()
}
