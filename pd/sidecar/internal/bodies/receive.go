package bodies

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	memory "github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/coding"
)

// IdleTimeout is how long a body may take to arrive. Speed is the rate in bytes per second that
// extends it.
const (
	IdleTimeout = 30 * time.Second
	Speed       = 64 << 10
)

// ErrMemory means that the memory for bodies is exhausted.
var ErrMemory = errors.New("bodies: no memory left for a body")

// Intake is a request's memory from the body budget: its own body and responses that are read as a
// whole.
type Intake struct {
	W    http.ResponseWriter // fails if the client does not read
	R    *http.Request
	held memory.Holder

	client http.ResponseWriter
	to     answer // W

	mu      sync.Mutex
	over    bool // the request has ended
	starved bool // its body is cut to free memory

	kept    []byte       // the request's body
	readers atomic.Int32 // readers of kept: leg bodies and the request itself
}

// Receive reads the request's body up to a limit. It takes memory from the budget as the body
// grows: a client that announces a large body and sends nothing uses 4 KiB.
func (in *Intake) Receive(from io.ReadCloser, limit int64) ([]byte, error) {
	in.readers.Add(1)
	in.held.Wait()
	text, err := readInto(in.grow, http.MaxBytesReader(in.client, from, limit), in.R.ContentLength)
	in.held.Keep()
	if in.kept = text; err != nil && in.isStarved() {
		err = ErrMemory
	}
	return text, err
}

// Decode returns the received body without its codings, up to a limit. It takes memory from the
// budget too. It returns errors of package coding.
func (in *Intake) Decode(codings []string, limit int64) ([]byte, error) {
	return coding.Decode(in.kept, codings, coding.Limits{Size: int(limit), Take: in.held.Take})
}

// grow returns a larger buffer with the data read so far, or nil without memory. Small request
// buffers have power-of-two sizes.
func (in *Intake) grow(have []byte, size int) []byte {
	if !in.held.Take(roomOf(size) - cap(have)) {
		return nil
	}
	larger := append(buffer(size), have...)
	recycle(have)
	return larger
}

// leave ends one use of the request's body. The last one recycles the buffer.
func (in *Intake) leave() {
	if in.readers.Add(-1) == 0 {
		recycle(in.kept)
	}
}

// Begin starts an intake. The request's body is cut if it arrives too slowly or other requests need
// its memory. End must follow.
func Begin(holders *memory.Holders, w http.ResponseWriter, r *http.Request) *Intake {
	in := &Intake{client: w, R: r}
	in.to = answer{ResponseWriter: w, conn: http.NewResponseController(w)}
	in.W = &in.to
	in.to.renew()
	holders.Begin(&in.held, in.starve)
	in.pace()
	return in
}

// pace cuts a body that arrives too slowly, whether it is kept, forwarded or rejected unread: the
// server waits for the rest before it responds.
func (in *Intake) pace() {
	if in.R.Body == nil || in.R.Body == http.NoBody {
		return
	}
	p := &paced{ReadCloser: in.R.Body, in: in, begun: time.Now()}
	in.deadline(p.begun.Add(IdleTimeout))
	in.R.Body = p
}

type paced struct {
	io.ReadCloser
	in    *Intake
	begun time.Time
	read  int64
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	p.in.deadline(p.begun.Add(IdleTimeout + time.Duration(p.read/Speed)*time.Second))
	n, err := p.ReadCloser.Read(b)
	if p.read += int64(n); errors.Is(err, io.EOF) {
		p.in.deadline(time.Time{}) // the response may take any time
	}
	return n, err
}

// deadline bounds the wait for the client while the connection belongs to this request; a leg may
// read a body after its request has ended. Connections without deadlines are not limited.
func (in *Intake) deadline(at time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.over && !in.starved {
		_ = in.to.conn.SetReadDeadline(at)
	}
}

// starve cuts the request's body to free memory for another one.
func (in *Intake) starve() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.starved = true; !in.over {
		_ = in.to.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

func (in *Intake) isStarved() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.starved
}

// firstRead is the size of the first read of a body.
const firstRead = 4 << 10

// soonRoom is the buffer size allowed for a body of known length once a sixteenth has arrived.
const soonRoom = 1 << 20

// ReadAll reads a response to its end, with memory from the budget as in Receive.
func (in *Intake) ReadAll(r io.Reader, announced int64) ([]byte, error) {
	return readInto(func(have []byte, size int) []byte {
		if !in.held.Take(size - cap(have)) {
			return nil
		}
		return append(make([]byte, 0, size), have...)
	}, r, announced)
}

// readInto reads to the end, into buffers from grow, which returns nil without memory. A buffer has
// at most twice the size of the data read. With a known length (announced >= 0) it has up to
// sixteen times that size, bounded by soonRoom and the length, because bodies may be announced and
// then not sent.
func readInto(grow func(have []byte, size int) []byte, r io.Reader, announced int64) ([]byte, error) {
	var text []byte
	for {
		if have := len(text); have == cap(text) {
			size := int64(max(2*have, firstRead))
			if announced >= int64(have) {
				size = min(max(size, min(int64(16*have), soonRoom)), announced+1) // one more byte to detect the end
			}
			larger := grow(text, int(size))
			if larger == nil {
				return text, ErrMemory
			}
			text = larger
		}
		n, err := r.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if errors.Is(err, io.EOF) {
			return text, nil
		} else if err != nil {
			return text, err
		}
	}
}

// End releases the memory.
func (in *Intake) End() {
	in.mu.Lock()
	in.over = true
	in.mu.Unlock()
	if in.kept != nil {
		in.leave()
	}
	in.held.End()
}
