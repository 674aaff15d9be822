package zmtp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// maxPings is the maximum number of consecutive unanswered PINGs.
const maxPings = 2

// Conn is a client connection, SUB or DEALER, after its handshake.
type Conn struct {
	opt  Options
	nc   net.Conn
	r    *reader
	peer SocketType

	// Owned by the goroutine that calls Recv.
	onCommand func([]byte) error
	deadline  time.Time // set by SetRecvDeadline
	armed     time.Time // current read deadline of nc
	since     time.Time // start of the current silence
	pings     int       // PINGs sent during it

	wmu  sync.Mutex
	wbuf []byte
}

// Dial connects to endpoint ("tcp://host:port", "host:port", with IPv6 in brackets, or
// "ipc://path"), performs the handshake and returns the connection. ctx and Options.Handshake bound
// the whole operation.
func Dial(ctx context.Context, endpoint string, opt Options) (*Conn, error) {
	opt = opt.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, opt.Handshake)
	defer cancel()
	network, addr := splitEndpoint(endpoint)
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	nc, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("zmtp: dial %s: %w", endpoint, err)
	}
	if tcp, ok := nc.(*net.TCPConn); ok && opt.ReadBuffer > 0 {
		_ = tcp.SetReadBuffer(opt.ReadBuffer) // best effort
	}
	// The handshake does not take a context: closing the socket ends it.
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	c, err := newConn(nc, opt)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = nc.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			err = context.DeadlineExceeded
		}
		return nil, fmt.Errorf("zmtp: handshake with %s: %w", endpoint, err)
	}
	return c, nil
}

func newConn(nc net.Conn, opt Options) (*Conn, error) {
	r := newReader(nc, opt.Limits)
	peer, err := handshake(nc, r, opt.Socket, opt.Handshake)
	if err != nil {
		return nil, err
	}
	return adopt(nc, r, peer, opt), nil
}

// adopt returns a Conn for a connection after its handshake.
func adopt(nc net.Conn, r *reader, peer SocketType, opt Options) *Conn {
	c := &Conn{opt: opt, nc: nc, r: r, peer: peer}
	c.r.src = c
	c.onCommand = c.command
	if c.r.minor < versionMinor {
		// It does not support PING and may close the connection on one. Only TCP keep-alive detects
		// its loss.
		c.opt.Heartbeat = -1
	}
	return c
}

// Peer returns the socket type that the peer announced.
func (c *Conn) Peer() SocketType { return c.peer }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Subscribe asks a PUB for messages whose first frame starts with topic; ""
// asks for all.
func (c *Conn) Subscribe(topic string) error {
	return c.Send(append([]byte{subAdd}, topic...))
}

// Send writes one message of the given frames. Safe for concurrent use.
func (c *Conn) Send(frames ...[]byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.wbuf = appendMessage(c.wbuf[:0], frames)
	return c.flush()
}

// flush writes wbuf. The caller holds wmu. A failed write may have truncated a message, so it ends
// the connection.
func (c *Conn) flush() error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.opt.Write)); err != nil {
		return err
	}
	_, err := c.nc.Write(c.wbuf)
	if err != nil {
		_ = c.nc.Close()
	}
	if cap(c.wbuf) > keepBuffer {
		c.wbuf = nil
	}
	return err
}

// SetRecvDeadline makes Recv return os.ErrDeadlineExceeded at t; the zero
// time removes it. Only the goroutine that calls Recv may call it.
func (c *Conn) SetRecvDeadline(t time.Time) { c.deadline = t }

// Recv reads the next message into m and reuses its buffers. It returns io.EOF if the peer closed
// the connection between messages, ErrSilent if the peer answers no PING, os.ErrDeadlineExceeded at
// the receive deadline, or another error. Every error is final for the connection.
func (c *Conn) Recv(m *Message) error { return c.r.next(m, c.onCommand) }

// Read implements io.Reader for the frame reader: one read from the socket, with heartbeats while
// it is silent.
func (c *Conn) Read(p []byte) (int, error) {
	if c.pings == 0 {
		c.since = time.Now()
	}
	for {
		if err := c.arm(); err != nil {
			return 0, err
		}
		n, err := c.nc.Read(p)
		if n > 0 {
			c.pings = 0
			return n, nil
		}
		switch {
		case errors.Is(err, net.ErrClosed):
			return 0, ErrClosed
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		}
		if err := c.silent(); err != nil {
			return 0, err
		}
	}
}

// arm sets the socket's read deadline to the next time at which something is due. A slightly early
// deadline is kept, which saves a system timer per read under load.
func (c *Conn) arm() error {
	var want time.Time
	if c.opt.Heartbeat > 0 {
		want = c.pingAt()
	}
	if !c.deadline.IsZero() && (want.IsZero() || c.deadline.Before(want)) {
		want = c.deadline
	}
	if early := want.Sub(c.armed); early == 0 || (!c.armed.IsZero() && early > 0 && early < c.opt.Heartbeat/4) {
		return nil
	}
	c.armed = want
	return c.nc.SetReadDeadline(want)
}

// pingAt returns when a PING is due.
func (c *Conn) pingAt() time.Time {
	at := c.since.Add(c.opt.Heartbeat)
	if c.opt.AlignPing != nil {
		at = c.opt.AlignPing(at)
	}
	return at
}

// silent handles an expired read deadline: it sends a PING if one is due and then returns errIdle.
func (c *Conn) silent() error {
	now := time.Now()
	c.armed = time.Time{}
	if !c.deadline.IsZero() && !now.Before(c.deadline) {
		return os.ErrDeadlineExceeded
	}
	if c.opt.Heartbeat <= 0 || now.Before(c.pingAt()) {
		return nil
	}
	if c.pings >= maxPings {
		return ErrSilent
	}
	c.pings++
	c.since = now // the reply gets its full time even after a pause of this process
	c.wmu.Lock()
	defer c.wmu.Unlock()
	// A TTL of zero: the peer need not monitor this side.
	c.wbuf = appendCommand(c.wbuf[:0], cmdPing, []byte{0, 0})
	if err := c.flush(); err != nil {
		return err
	}
	return errIdle
}

// command handles a command between messages.
func (c *Conn) command(body []byte) error {
	name, data, err := splitCommand(body)
	if err != nil {
		return err
	}
	switch name {
	case cmdPing:
		return c.pong(data)
	case cmdError:
		return fmt.Errorf("%w: peer says %q", ErrProtocol, data)
	}
	return nil
}

func (c *Conn) pong(data []byte) error {
	if len(data) < 2 {
		return fmt.Errorf("%w: PING of %d bytes", ErrProtocol, len(data))
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.wbuf = appendPong(c.wbuf[:0], data)
	return c.flush()
}

// appendPong appends the reply to a PING, whose data is a TTL of two bytes and a context.
func appendPong(dst, ping []byte) []byte {
	context := ping[2:]
	return appendCommand(dst, cmdPong, context[:min(len(context), maxPingContext)])
}

// Close closes the connection and wakes a Recv. It may be called repeatedly and by any goroutine.
func (c *Conn) Close() error {
	err := c.nc.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

var _ io.Reader = (*Conn)(nil)
