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

// protocol is the ALPN protocol of both ends.
const protocol = "grapevine-federation/1"

// Timeouts and limits of connections.
const (
	dialTimeout  = 3 * time.Second
	writeTimeout = 5 * time.Second
	idleTimeout  = 30 * time.Second // an importer asks about once a second
	queueFrames  = 64
	maxOfCluster = 128 // connections per cluster, more than its replicas that are answered
)

// conn is one connection of a cluster, dialed or accepted. A frame is a 4-byte length, little
// endian, and the message.
type conn struct {
	cluster, name string // name: the dialed target, or a local number
	queue         chan []byte
	closed        chan struct{}
	once          sync.Once
	used          time.Time // when a frame was last queued; guarded by Link.mu
}

func newConn(cluster, name string, now time.Time) *conn {
	return &conn{cluster: cluster, name: name, queue: make(chan []byte, queueFrames), closed: make(chan struct{}), used: now}
}

func (c *conn) close() { c.once.Do(func() { close(c.closed) }) }

// pump writes queued frames until the connection ends.
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

var errFrame = errors.New("frame exceeds the maximum message size")

// readFrame reads one frame. Its buffer grows with the bytes received.
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

// serve exchanges frames until either end closes, and returns the reason.
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

// dial runs one connection until it ends and logs the reason.
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

// closeWith closes a connection when ctx or c ends. The returned function stops the watcher.
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

// accept accepts connections until the listener is closed.
func (l *Link) accept(ctx context.Context, lis net.Listener) {
	for {
		w, err := lis.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select { // most likely out of file descriptors
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

// greet authenticates a new connection. known is nil if it is rejected. It calls over once that is
// decided.
func (l *Link) greet(ctx context.Context, raw net.Conn, over func()) (w *tls.Conn, known *conn) {
	defer over()
	w = tls.Server(raw, l.identity.server())
	hello, cancel := context.WithTimeout(ctx, dialTimeout)
	err := w.HandshakeContext(hello)
	cancel()
	if err != nil {
		l.refuse("identity")
		l.o.Log.Debug("connection rejected", "from", raw.RemoteAddr().String(), "error", err)
		return nil, nil
	}
	cluster := l.clusterOf(w.ConnectionState())
	if cluster == "" {
		l.refuse("stranger")
		l.o.Log.Debug("connection rejected", "from", raw.RemoteAddr().String(), "error", "the certificate names no configured cluster")
		return nil, nil
	}
	if known = l.accepted(cluster); known == nil {
		l.refuse("connections")
	}
	return w, known
}

// listen serves a connection opened by a cluster.
func (l *Link) listen(ctx context.Context, w *tls.Conn, c *conn) {
	defer l.ended(c)
	defer c.close()
	defer l.closeWith(ctx, c, w)()
	err := l.serve(c, w)
	l.o.Log.Debug("connection of a cluster ended", "cluster", c.cluster, "from", w.RemoteAddr().String(), "error", err)
}

// clusterOf returns the one cluster that a certificate names, or "" if it names none or several.
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
