package listen

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

const (
	// emptyEvery is the interval at which a connection may end a stream without data, and
	// emptyBurst the size of a burst. Proxies send the request's headers, which are gRPC data,
	// together with the stream's own, so they hardly ever end a stream without data.
	emptyEvery = 10 * time.Millisecond
	emptyBurst = 200
	// pacedRead is how much is read between two waits: a few dozen streams.
	pacedRead = 512
	// pacedWait is the longest wait until the next read, which notices the connection's end.
	pacedWait = time.Second
	// pacedLog is the interval of log messages about waiting connections.
	pacedLog = time.Minute
)

// Pacing delays connections that open streams and end them without data. That is free for the
// client, but costs the server a stream and a goroutine each. Safe for concurrent use.
type Pacing struct {
	Listener string
	Paced    func() // called when a connection waits for the first time
	Log      *slog.Logger

	mu       sync.Mutex
	warnedAt time.Time
	quiet    int
}

// Over returns c with server connections paced.
func (p *Pacing) Over(c credentials.TransportCredentials) credentials.TransportCredentials {
	return pacedCreds{c, p}
}

// warn counts a waiting connection and periodically logs it.
func (p *Pacing) warn(from net.Addr) {
	p.Paced()
	now := time.Now()
	p.mu.Lock()
	if !p.warnedAt.IsZero() && now.Sub(p.warnedAt) < pacedLog {
		p.quiet++
		p.mu.Unlock()
		return
	}
	more := p.quiet
	p.warnedAt, p.quiet = now, 0
	p.mu.Unlock()
	p.Log.Warn("limiting a connection that opens and resets streams without data", "listener", p.Listener, "address", from.String(), "since_last", more)
}

type pacedCreds struct {
	credentials.TransportCredentials
	p *Pacing
}

// ServerHandshake implements credentials.TransportCredentials.
func (c pacedCreds) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	out := &pacedConn{Conn: conn, p: c.p, frames: frames{left: prefaceLen}}
	out.open, out.close = context.WithCancel(context.Background())
	return out, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c pacedCreds) Clone() credentials.TransportCredentials {
	return pacedCreds{c.TransportCredentials.Clone(), c.p}
}

// pacedConn is an HTTP/2 connection as read by the server. One goroutine reads.
type pacedConn struct {
	net.Conn
	p      *Pacing
	frames frames
	due    time.Time // when the debt for all empty streams is paid; zero while there is none
	warned atomic.Bool
	open   context.Context // done when the connection is closed
	close  context.CancelFunc
}

// Read reads after waiting for the connection's debt.
func (c *pacedConn) Read(b []byte) (int, error) {
	if !c.due.IsZero() {
		if wait := time.Until(c.due) - emptyBurst*emptyEvery; wait > 0 {
			c.wait(min(wait, pacedWait))
			b = b[:min(len(b), pacedRead)]
		}
	}
	n, err := c.Conn.Read(b)
	if empty := c.frames.see(b[:n]); empty != 0 {
		c.pay(empty)
	}
	return n, err
}

// pay moves due by that many empty streams; a negative n reduces it.
func (c *pacedConn) pay(n int) {
	if n < 0 && c.due.IsZero() {
		return
	}
	now := time.Now()
	if c.due.Before(now) {
		c.due = now
	}
	if c.due = c.due.Add(time.Duration(n) * emptyEvery); !c.due.After(now) {
		c.due = time.Time{}
	}
}

func (c *pacedConn) wait(d time.Duration) {
	if !c.warned.Swap(true) {
		c.p.warn(c.RemoteAddr())
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.open.Done():
	}
}

// Close closes the connection and ends its wait.
func (c *pacedConn) Close() error {
	c.close()
	return c.Conn.Close()
}

const (
	prefaceLen = 24 // of HTTP/2, before the first frame
	headerLen  = 9  // of a frame

	frameData, frameHeaders, frameReset = 0, 1, 3
	flagEnd                             = 1 // of data and headers: the stream's last frame

	// openStreams is the number of tracked streams without data, the most recent ones.
	openStreams = 512
)

// frames classifies HTTP/2 streams by whether they carried data. Its input may be split at any
// byte. It stores only frame headers.
type frames struct {
	left   int // bytes to skip
	head   [headerLen]byte
	filled int
	last   uint32              // highest stream opened
	silent [openStreams]uint32 // numbers of streams without data; 0 for none
}

// see processes b and returns how many streams ended without data, minus the streams that carried
// data for the first time.
func (f *frames) see(b []byte) (empty int) {
	for len(b) > 0 {
		if f.left > 0 {
			n := min(f.left, len(b))
			f.left -= n
			b = b[n:]
			continue
		}
		n := copy(f.head[f.filled:], b)
		f.filled += n
		if b = b[n:]; f.filled == headerLen {
			f.filled, f.left = 0, int(binary.BigEndian.Uint32(f.head[:4])>>8)
			empty += f.frame(f.head[3], f.head[4], binary.BigEndian.Uint32(f.head[5:])&(1<<31-1))
		}
	}
	return empty
}

// frame handles a frame header; the frame's length is in left.
func (f *frames) frame(kind, flags byte, stream uint32) int {
	at := &f.silent[stream/2%openStreams]
	if kind == frameHeaders && stream > f.last {
		f.last, *at = stream, stream
	}
	if stream == 0 || *at != stream {
		return 0
	}
	ends := kind == frameReset || flags&flagEnd != 0 && (kind == frameHeaders || kind == frameData)
	switch {
	case kind == frameData && f.left > 0:
		*at = 0
		return -1
	case ends:
		*at = 0
		return 1
	}
	return 0
}
