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
	// emptyEvery is how often a connection may end a stream of which no data came, and
	// emptyBurst how many it may end at once. Proxies send the request's headers, which are
	// data of gRPC, with the stream's own, and so end none of these but by a rare chance.
	emptyEvery = 10 * time.Millisecond
	emptyBurst = 200
	// pacedRead is how much is read between two waits: a few dozen streams.
	pacedRead = 512
	// pacedWait is how long it waits at most until the next read, which sees its end.
	pacedWait = time.Second
	// pacedLog is how often the log tells of connections that wait.
	pacedLog = time.Minute
)

// Pacing has connections wait that open streams and end them before they said anything, which
// costs who does it nothing and the server a stream and a goroutine each. Safe for
// concurrent use.
type Pacing struct {
	Listener string
	Paced    func() // counts a connection, when it waits for the first time
	Log      *slog.Logger

	mu    sync.Mutex
	told  time.Time
	quiet int
}

// Over returns c with the connections of its servers paced.
func (p *Pacing) Over(c credentials.TransportCredentials) credentials.TransportCredentials {
	return pacedCreds{c, p}
}

// tell counts a connection that waits, and has the log say so once in a while.
func (p *Pacing) tell(from net.Addr) {
	p.Paced()
	now := time.Now()
	p.mu.Lock()
	if !p.told.IsZero() && now.Sub(p.told) < pacedLog {
		p.quiet++
		p.mu.Unlock()
		return
	}
	more := p.quiet
	p.told, p.quiet = now, 0
	p.mu.Unlock()
	p.Log.Warn("a connection waits: it ends streams that said nothing", "listener", p.Listener, "address", from.String(), "since_last", more)
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

// pacedConn is a connection of HTTP/2, as its server reads it. One goroutine reads.
type pacedConn struct {
	net.Conn
	p      *Pacing
	frames frames
	due    time.Time // when all streams that said nothing are paid for; zero while there are none
	told   atomic.Bool
	open   context.Context // ends with the connection
	close  context.CancelFunc
}

// Read reads, once the connection has waited for what it did.
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

// pay puts off what is due by so many streams that said nothing; by less, where n is below
// zero, for those that did.
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
	if !c.told.Swap(true) {
		c.p.tell(c.RemoteAddr())
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.open.Done():
	}
}

// Close ends the connection, and the wait.
func (c *pacedConn) Close() error {
	c.close()
	return c.Conn.Close()
}

const (
	prefaceLen = 24 // of HTTP/2, before the first frame
	headerLen  = 9  // of a frame

	frameData, frameHeaders, frameReset = 0, 1, 3
	flagEnd                             = 1 // of data and headers: the stream's last frame

	// openStreams is how many streams that said nothing are known, the youngest.
	openStreams = 512
)

// frames counts streams of HTTP/2 by whether they said something, of the bytes in which they
// come, in any pieces. It holds nothing of frames but their heads.
type frames struct {
	left   int // of what is passed over
	head   [headerLen]byte
	filled int
	last   uint32              // the highest stream that was opened
	silent [openStreams]uint32 // streams that said nothing, by their numbers; 0 for none
}

// see reads on, and returns how many streams ended that had said nothing, less those
// that said something for the first time.
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

// frame takes the head of a frame, whose length is in left.
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
