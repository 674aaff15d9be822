package scrape

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	headLimit    = 64 << 10 // bytes of an answer's head, 1xx answers included
	readBuffer   = 4 << 10
	keepAlive    = 30 * time.Second // TCP probes
	forgetEvery  = time.Minute
	defaultHTTP  = "80"
	defaultHTTPS = "443"
)

var errHead = errors.New("scrape: the answer's head is too large")

// transport is an http.RoundTripper for readings: HTTP/1.1, at most one kept
// connection per address, no redirects, no proxies. A reading runs on its
// caller's goroutine alone. net/http's transport has two more for each
// connection, and waking them costs more than reading a page. Safe for
// concurrent use.
type transport struct {
	dialer net.Dialer
	tls    *tls.Config
	keep   time.Duration // how long a connection waits for its next reading
	now    func() time.Time

	mu        sync.Mutex
	idle      map[string]*link
	forgotten time.Time // when old connections were last looked for
	closed    bool
}

// link is one connection.
type link struct {
	key   string
	conn  net.Conn
	in    *bufio.Reader
	left  int64     // bytes that may still be read from conn
	since time.Time // idle since
}

// Read implements io.Reader for in.
func (l *link) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errHead
	}
	n, err := l.conn.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

func newTransport(o *Options) *transport {
	return &transport{
		dialer: net.Dialer{Timeout: o.Timeout, KeepAlive: keepAlive}, tls: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.SkipVerify},
		keep: 2*o.MaxBackoff + time.Minute, now: o.Now, idle: map[string]*link{},
	}
}

// RoundTrip implements http.RoundTripper for requests without a body. The
// connection is kept if the answer's body is read to its end.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key := r.URL.Scheme + "://" + r.URL.Host
	if l := t.take(key); l != nil {
		resp, err := t.exchange(l, r)
		if err == nil || r.Context().Err() != nil || !closedByPeer(err) {
			return resp, err
		}
		// The engine had closed the connection since the last reading.
	}
	conn, err := t.dial(r)
	if err != nil {
		return nil, err
	}
	l := &link{key: key, conn: conn}
	l.in = bufio.NewReaderSize(l, readBuffer)
	return t.exchange(l, r)
}

// closedByPeer tells what a kept connection says that the other side has
// closed: no answer at all, or a broken pipe.
func closedByPeer(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.As(err, &op) && !op.Timeout()
}

func (t *transport) dial(r *http.Request) (net.Conn, error) {
	port := r.URL.Port()
	if port == "" {
		port = defaultHTTP
		if r.URL.Scheme == "https" {
			port = defaultHTTPS
		}
	}
	address := net.JoinHostPort(r.URL.Hostname(), port)
	if r.URL.Scheme == "https" {
		d := tls.Dialer{NetDialer: &t.dialer, Config: t.tls}
		return d.DialContext(r.Context(), "tcp", address)
	}
	return t.dialer.DialContext(r.Context(), "tcp", address)
}

// exchange sends r and reads the head of its answer. It closes l on an error;
// otherwise the answer's body owns it.
func (t *transport) exchange(l *link, r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	deadline, _ := ctx.Deadline() // none is the zero time
	_ = l.conn.SetDeadline(deadline)
	b := &body{t: t, l: l, stop: context.AfterFunc(ctx, func() { _ = l.conn.Close() })}
	resp, err := l.ask(r)
	if err != nil {
		b.end(false)
		return nil, cause(ctx, err)
	}
	l.left = math.MaxInt64
	b.ReadCloser, b.ctx, b.keep = resp.Body, ctx, !resp.Close
	resp.Body = b
	return resp, nil
}

// cause prefers the reason for which ctx closed the connection.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// ask writes a request and reads answers until one that is final.
func (l *link) ask(r *http.Request) (*http.Response, error) {
	var head bytes.Buffer
	if err := r.Write(&head); err != nil {
		return nil, err
	}
	if _, err := l.conn.Write(head.Bytes()); err != nil {
		return nil, err
	}
	l.left = headLimit
	if _, err := l.in.Peek(1); err != nil {
		return nil, err
	}
	for {
		resp, err := http.ReadResponse(l.in, r)
		if err != nil && l.left <= 0 {
			return nil, errHead
		}
		if err != nil || resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
}

// body is an answer's body, which gives the connection back at its end.
type body struct {
	io.ReadCloser
	t     *transport
	l     *link
	ctx   context.Context
	stop  func() bool // ends the watch over the request's context
	keep  bool
	ended bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.end(b.keep)
	case err != nil:
		b.end(false)
		err = cause(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.end(false)
	return nil
}

func (b *body) end(keep bool) {
	if b.ended {
		return
	}
	b.ended = true
	if b.stop() && keep {
		b.t.put(b.l)
		return
	}
	_ = b.l.conn.Close()
}

// take returns the kept connection of an address, if there is one.
func (t *transport) take(key string) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.idle[key]
	delete(t.idle, key)
	if l != nil && l.in.Buffered() > 0 { // it said something unasked
		_ = l.conn.Close()
		return nil
	}
	return l
}

func (t *transport) put(l *link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.idle[l.key] != nil {
		_ = l.conn.Close()
		return
	}
	l.since = t.now()
	t.idle[l.key] = l
	if l.since.Sub(t.forgotten) < forgetEvery {
		return
	}
	t.forgotten = l.since
	for key, old := range t.idle {
		if l.since.Sub(old.since) > t.keep {
			_ = old.conn.Close()
			delete(t.idle, key)
		}
	}
}

// close closes the kept connections, and those in use when they are given back.
func (t *transport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, l := range t.idle {
		_ = l.conn.Close()
	}
	clear(t.idle)
}
