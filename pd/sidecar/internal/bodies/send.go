package bodies

import (
	"errors"
	"io"
	"math/bits"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// Request bodies are kept in pooled buffers of leastBuffer bytes times a power of two. Larger
// bodies are not pooled.
const (
	leastBuffer = firstRead
	numBuffers  = 9
)

var bodies [numBuffers]sync.Pool

// classOf returns the smallest buffer class for n bytes; numBuffers: none.
func classOf(n int) int {
	return min(bits.Len(uint(max(n-1, 0)/leastBuffer)), numBuffers)
}

// roomOf returns the size of buffer(n).
func roomOf(n int) int {
	if class := classOf(n); class < numBuffers {
		return leastBuffer << class
	}
	return n
}

// buffer returns an empty buffer for at least n bytes.
func buffer(n int) []byte {
	class := classOf(n)
	if class == numBuffers {
		return make([]byte, 0, n)
	}
	if b, ok := bodies[class].Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, leastBuffer<<class)
}

// recycle returns a buffer to its pool. It must not be used afterwards.
func recycle(b []byte) {
	if class := classOf(cap(b)); class < numBuffers && cap(b) == leastBuffer<<class {
		bodies[class].Put(&b)
	}
}

// Send returns the body of a leg, which may be read after the request's end. Its memory is kept
// until it is closed.
func (in *Intake) Send(body kvtransfer.Pieces) io.ReadCloser {
	in.readers.Add(1)
	return &outgoing{in: in, left: net.Buffers(slices.Clone(body))}
}

// outgoing is the body of a leg. Transports may close it from any goroutine at any time.
type outgoing struct {
	in     *Intake
	mu     sync.Mutex
	left   net.Buffers
	busy   bool // being written without the lock
	closed bool
}

// Read implements io.Reader.
func (o *outgoing) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return o.left.Read(p)
}

// Close implements io.Closer.
func (o *outgoing) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && !o.busy {
		o.in.leave()
	}
	o.closed = true
	return nil
}

// writeTo writes the rest to a connection without copying.
func (o *outgoing) writeTo(c *net.TCPConn) (int64, error) {
	o.mu.Lock()
	left := o.left
	o.left, o.busy = nil, !o.closed
	closed := o.closed
	o.mu.Unlock()
	if closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := left.WriteTo(c)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy = false; o.closed {
		o.in.leave()
	}
	return n, err
}

// Gathering returns a connection that writes the rest of a leg's body with one vectored write,
// without copying.
func Gathering(c net.Conn, err error) (net.Conn, error) {
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		return gather{tcp}, nil
	}
	return c, err
}

type gather struct{ *net.TCPConn }

var errLength = errors.New("bodies: a leg's body differs from its stated length")

// ReadFrom implements io.ReaderFrom.
func (g gather) ReadFrom(r io.Reader) (int64, error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return g.TCPConn.ReadFrom(r)
	}
	o, ok := limited.R.(*outgoing)
	if !ok {
		return g.TCPConn.ReadFrom(r)
	}
	n, err := o.writeTo(g.TCPConn)
	if limited.N -= n; err == nil && limited.N != 0 {
		err = errLength
	}
	return n, err
}
