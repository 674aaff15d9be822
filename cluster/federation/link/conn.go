package link

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/internal/budget"
)

// protocol is what both ends say in the TLS handshake (ALPN).
const protocol = "grapevine-federation/1"

// Times and bounds of connections.
const (
	dialTimeout  = 3 * time.Second
	writeTimeout = 5 * time.Second
	idleTimeout  = 30 * time.Second // an importer asks every second or so
	queueFrames  = 64
	maxOfCluster = 128 // connections that one cluster made, and more than its replicas that are answered
)

// conn is one connection, dialled or accepted, of one cluster. A frame is its length in
// four bytes, little endian, and the message.
type conn struct {
	cluster, name string // name: the target that was dialled, or a number of our own
	queue         chan []byte
	closed        chan struct{}
	once          sync.Once
	used          time.Time // a frame was queued; guarded by Link.mu
}

func newConn(cluster, name string, now time.Time) *conn {
	return &conn{cluster: cluster, name: name, queue: make(chan []byte, queueFrames), closed: make(chan struct{}), used: now}
}

func (c *conn) close() { c.once.Do(func() { close(c.closed) }) }

// pump writes what is queued until the connection ends.
func (c *conn) pump(w net.Conn) error {
	var head [4]byte
	for {
		select {
		case <-c.closed:
			return net.ErrClosed
		case frame := <-c.queue:
			binary.LittleEndian.PutUint32(head[:], uint32(len(frame)))
			if err := w.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
				return err
			}
			buffers := net.Buffers{head[:], frame}
			if _, err := buffers.WriteTo(w); err != nil {
				return err
			}
		}
	}
}

var errFrame = errors.New("a frame is larger than any message")

// readFrame reads one frame into a slice of its own, which grows with what has come.
func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > federation.MaxMessage {
		return nil, errFrame
	}
	return budget.ReadAnnounced(r, int(n))
}

// serve carries frames both ways until either ends, and returns why.
func (l *Link) serve(c *conn, w net.Conn) error {
	l.wg.Go(func() {
		if err := c.pump(w); err != nil {
			c.close()
			_ = w.Close()
		}
	})
	r := bufio.NewReader(w)
	for {
		if err := w.SetReadDeadline(time.Now().Add(idleTimeout)); err != nil {
			return err
		}
		frame, err := readFrame(r)
		if err != nil {
			return err
		}
		l.receive(c, frame)
		if !l.rest(c, l.paces[c.cluster].take(len(frame), time.Now())) {
			return net.ErrClosed
		}
	}
}

// dial keeps nothing: it runs one connection until it ends, and says so.
func (l *Link) dial(ctx context.Context, c *conn, certificate string) {
	err := l.session(ctx, c, certificate)
	c.close()
	l.ended(c)
	if ctx.Err() == nil {
		l.o.Log.Debug("connection to a cluster ended", "cluster", c.cluster, "address", c.name, "error", err)
		l.broken(c.cluster, c.name, fmt.Sprintf("%s: %v", c.name, err))
	}
}

func (l *Link) session(ctx context.Context, c *conn, certificate string) error {
	host, _, err := net.SplitHostPort(c.name)
	if err != nil {
		return err
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: l.identity.client(certificate, host)}
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	w, err := d.DialContext(dialing, "tcp", c.name)
	cancel()
	if err != nil {
		return err
	}
	defer w.Close()
	defer l.closeWith(ctx, c, w)()
	return l.serve(c, w)
}

// closeWith ends a connection when ctx or c do; the result ends the watching.
func (l *Link) closeWith(ctx context.Context, c *conn, w net.Conn) (stop func()) {
	done := make(chan struct{})
	l.wg.Go(func() {
		select {
		case <-ctx.Done():
		case <-c.closed:
		case <-done:
		}
		_ = w.Close()
	})
	return func() { close(done) }
}

// accept takes connections until the listener ends.
func (l *Link) accept(ctx context.Context, lis net.Listener) {
	for {
		w, err := lis.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select { // out of files, most likely
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		at, closed := l.greetings.begin(w)
		if closed {
			l.refuse("connections")
		}
		l.wg.Go(func() {
			defer w.Close()
			if t, known := l.greet(ctx, w, func() { l.greetings.end(at) }); known != nil {
				l.listen(ctx, t, known)
			}
		})
	}
}

// greet finds out who has connected: known is nil for nobody who is listened to. It calls
// over once that is known.
func (l *Link) greet(ctx context.Context, raw net.Conn, over func()) (w *tls.Conn, known *conn) {
	defer over()
	w = tls.Server(raw, l.identity.server())
	hello, cancel := context.WithTimeout(ctx, dialTimeout)
	err := w.HandshakeContext(hello)
	cancel()
	if err != nil {
		l.refuse("identity")
		l.o.Log.Debug("a connection was refused", "from", raw.RemoteAddr().String(), "error", err)
		return nil, nil
	}
	cluster := l.clusterOf(w.ConnectionState())
	if cluster == "" {
		l.refuse("stranger")
		l.o.Log.Debug("a connection was refused", "from", raw.RemoteAddr().String(), "error", "its certificate names no cluster that is configured")
		return nil, nil
	}
	if known = l.accepted(cluster); known == nil {
		l.refuse("connections")
	}
	return w, known
}

// listen serves a connection that a cluster made.
func (l *Link) listen(ctx context.Context, w *tls.Conn, c *conn) {
	defer l.ended(c)
	defer c.close()
	defer l.closeWith(ctx, c, w)()
	err := l.serve(c, w)
	l.o.Log.Debug("connection of a cluster ended", "cluster", c.cluster, "from", w.RemoteAddr().String(), "error", err)
}

// clusterOf returns the one cluster that a certificate names, "" when there is none or
// more than one.
func (l *Link) clusterOf(cs tls.ConnectionState) (found string) {
	leaf := cs.PeerCertificates[0]
	names := append([]string(nil), leaf.DNSNames...)
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	for _, n := range names {
		c, ok := l.byCertificate[n]
		if !ok || c == found {
			continue
		}
		if found != "" {
			return ""
		}
		found = c
	}
	return found
}
