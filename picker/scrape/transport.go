package scrape

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// transport is an http.RoundTripper for GET requests to one address, one at a time. It keeps one
// connection, reads on the caller's goroutine, and holds no buffer between requests. http.Transport needs
// two goroutines and 5 KB for each connection, and wakes each of them for each page.
type transport struct {
	dial net.Dialer
	tls  *tls.Config
	// handshake bounds the TLS handshake.
	handshake time.Duration

	mu     sync.Mutex
	idle   net.Conn // nil: none
	closed bool
}

func newTransport(o *Options) *transport {
	return &transport{dial: net.Dialer{Timeout: o.Timeout, KeepAlive: 30 * time.Second}, tls: o.TLS, handshake: o.Timeout}
}

const (
	maxHeader  = 64 << 10
	readBuffer = 16 << 10
)

var errHeader = errors.New("scrape: the header of the answer is too large")

// exchange is one request and its response on a connection. The caller of RoundTrip reads the body and
// closes it.
type exchange struct {
	t      *transport
	conn   net.Conn
	ctx    context.Context
	stop   func() bool // ends the watch of ctx
	in     *bufio.Reader
	left   int // bytes that may still be read, for the header; -1: no limit
	got    bool
	body   io.ReadCloser
	ended  bool // the body has been read to its end
	keep   bool // the connection can be used again
	closed bool
}

// Read implements io.Reader for the buffer.
func (x *exchange) Read(p []byte) (int, error) {
	if x.left == 0 {
		return 0, errHeader
	}
	if x.left > 0 {
		p = p[:min(len(p), x.left)]
	}
	n, err := x.conn.Read(p)
	if x.left > 0 {
		x.left -= n
	}
	x.got = x.got || n > 0
	return n, err
}

var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBuffer) }}
	writers = sync.Pool{New: func() any { return new(bytes.Buffer) }}
)

// RoundTrip implements http.RoundTripper. If a kept connection turns out to be closed, the request is sent
// again on a new one.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	conn := t.take()
	kept := conn != nil
	for {
		if conn == nil {
			var err error
			if conn, err = t.connect(r); err != nil {
				return nil, err
			}
		}
		resp, got, err := t.exchange(conn, r)
		if err == nil {
			return resp, nil
		}
		if ctx := r.Context().Err(); ctx != nil {
			return nil, ctx
		}
		if !kept || got {
			return nil, err
		}
		conn, kept = nil, false
	}
}

func (t *transport) take() net.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	conn := t.idle
	t.idle = nil
	return conn
}

func (t *transport) connect(r *http.Request) (net.Conn, error) {
	ctx, address, secure := r.Context(), r.URL.Host, r.URL.Scheme == "https"
	if r.URL.Port() == "" {
		port := "80"
		if secure {
			port = "443"
		}
		address = net.JoinHostPort(r.URL.Hostname(), port)
	}
	conn, err := t.dial.DialContext(ctx, "tcp", address)
	if err != nil || !secure {
		return conn, err
	}
	conf := t.tls.Clone()
	if conf == nil {
		conf = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if conf.ServerName == "" {
		conf.ServerName = r.URL.Hostname()
	}
	ctx, cancel := context.WithTimeout(ctx, t.handshake)
	defer cancel()
	over := tls.Client(conn, conf)
	if err := over.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return over, nil
}

// exchange sends a request and reads the header of the response. got reports whether the peer sent
// anything.
func (t *transport) exchange(conn net.Conn, r *http.Request) (resp *http.Response, got bool, err error) {
	x := &exchange{t: t, conn: conn, ctx: r.Context(), left: maxHeader}
	deadline, _ := x.ctx.Deadline() // zero: none
	if err := conn.SetDeadline(deadline); err != nil {
		_ = conn.Close()
		return nil, false, err
	}
	x.stop = context.AfterFunc(x.ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	x.in = readers.Get().(*bufio.Reader)
	x.in.Reset(x)
	if err = x.send(r); err == nil {
		resp, err = http.ReadResponse(x.in, r)
	}
	for err == nil && resp.StatusCode < http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(x.in, r) // informational
	}
	if err != nil {
		x.end()
		return nil, x.got, err
	}
	x.left, x.keep = -1, !resp.Close && resp.StatusCode != http.StatusSwitchingProtocols
	x.body = resp.Body
	resp.Body = (*exchangeBody)(x)
	return resp, true, nil
}

func (x *exchange) send(r *http.Request) error {
	b := writers.Get().(*bytes.Buffer)
	defer writers.Put(b)
	b.Reset()
	if err := r.Write(b); err != nil {
		return err
	}
	_, err := x.conn.Write(b.Bytes())
	return err
}

// end keeps or closes the connection.
func (x *exchange) end() {
	if x.closed {
		return
	}
	x.closed = true
	keep := x.stop() && x.keep && x.ended && x.in.Buffered() == 0
	x.in.Reset(nil)
	readers.Put(x.in)
	x.in = nil
	if keep {
		keep = x.t.put(x.conn)
	}
	if !keep {
		_ = x.conn.Close()
	}
}

// put keeps a connection for the next request, unless the transport has been closed.
func (t *transport) put(conn net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.idle != nil {
		return false
	}
	t.idle = conn
	return true
}

// Close closes the kept connection, and others at the end of their request.
func (t *transport) Close() {
	t.mu.Lock()
	conn := t.idle
	t.idle, t.closed = nil, true
	t.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}

// exchangeBody is the body of a response.
type exchangeBody exchange

// Read implements io.Reader.
func (b *exchangeBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended = true
	} else if err != nil && b.ctx.Err() != nil {
		err = b.ctx.Err()
	}
	return n, err
}

// Close ends the exchange. A body that was not read to its end costs the connection.
func (b *exchangeBody) Close() error {
	(*exchange)(b).end()
	return nil
}
