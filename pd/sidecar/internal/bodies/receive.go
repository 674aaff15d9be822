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

// Patience is how long a body may take to come, and Speed the bytes a second that buy it
// more.
const (
	Patience = 30 * time.Second
	Speed    = 64 << 10
)

// ErrMemory says that the memory for bodies is used up.
var ErrMemory = errors.New("bodies: no memory left for a body")

// Intake is what a request has taken of the memory for bodies: its own, and those of the
// answers that are read whole.
type Intake struct {
	W    http.ResponseWriter // fails when the client does not read
	R    *http.Request
	held memory.Holder

	client http.ResponseWriter
	to     answer // W

	mu      sync.Mutex
	over    bool // the request has ended
	starved bool // its body is to break off: the memory is needed

	kept    []byte       // the request's body
	readers atomic.Int32 // of it: legs' bodies, and the request itself
}

// Receive reads the request's body from a reader, up to a limit. The room for it is taken from
// the budget as it grows: who announces many and sends none takes 4 KiB.
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

// Decode returns the received body without its codings, up to a limit. Its memory is taken from
// the budget too. The errors are those of package coding.
func (in *Intake) Decode(codings []string, limit int64) ([]byte, error) {
	return coding.Decode(in.kept, codings, coding.Limits{Size: int(limit), Take: in.held.Take})
}

// grow returns a larger buffer with what has come, nil where there is no memory for it;
// small buffers of requests are powers of two.
func (in *Intake) grow(have []byte, size int) []byte {
	if !in.held.Take(roomOf(size) - cap(have)) {
		return nil
	}
	larger := append(buffer(size), have...)
	recycle(have)
	return larger
}

// leave ends a look at the request's body; the last one gives the buffer back.
func (in *Intake) leave() {
	if in.readers.Add(-1) == 0 {
		recycle(in.kept)
	}
}

// Begin takes a request in: its body breaks off where it comes too slowly, or where others
// need its memory. End must follow.
func Begin(holders *memory.Holders, w http.ResponseWriter, r *http.Request) *Intake {
	in := &Intake{client: w, R: r}
	in.to = answer{ResponseWriter: w, conn: http.NewResponseController(w)}
	in.W = &in.to
	in.to.renew()
	holders.Begin(&in.held, in.starve)
	in.pace()
	return in
}

// pace has the request's body break off where it comes too slowly, whoever reads it, whether
// it is kept, passed on or refused unread: the server waits for the rest before it answers.
func (in *Intake) pace() {
	if in.R.Body == nil || in.R.Body == http.NoBody {
		return
	}
	p := &paced{ReadCloser: in.R.Body, in: in, begun: time.Now()}
	in.deadline(p.begun.Add(Patience))
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
	p.in.deadline(p.begun.Add(Patience + time.Duration(p.read/Speed)*time.Second))
	n, err := p.ReadCloser.Read(b)
	if p.read += int64(n); errors.Is(err, io.EOF) {
		p.in.deadline(time.Time{}) // the answer may take its time
	}
	return n, err
}

// deadline bounds the wait for the client, as long as the connection is this request's: a leg
// may read a body after its request has ended. Where connections have no deadlines, they wait.
func (in *Intake) deadline(at time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.over && !in.starved {
		_ = in.to.conn.SetReadDeadline(at)
	}
}

// starve has the request's body break off, for another one that needs its memory.
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

// firstRead is how much of a body is read at first.
const firstRead = 4 << 10

// soonRoom is the room that a body may have that is known to become as large, once a sixteenth
// of it has come.
const soonRoom = 1 << 20

// ReadAll reads an answer to the end, into memory that is taken from the budget as Receive does.
func (in *Intake) ReadAll(r io.Reader, announced int64) ([]byte, error) {
	return readInto(func(have []byte, size int) []byte {
		if !in.held.Take(size - cap(have)) {
			return nil
		}
		return append(make([]byte, 0, size), have...)
	}, r, announced)
}

// readInto reads to the end, into buffers of grow, which returns nil where there is no memory.
// They have twice what has come at most, and where all of it is known (announced >= 0) sixteen
// times up to soonRoom, and no more than all: bodies are announced and then not sent.
func readInto(grow func(have []byte, size int) []byte, r io.Reader, announced int64) ([]byte, error) {
	var text []byte
	for {
		if have := len(text); have == cap(text) {
			size := int64(max(2*have, firstRead))
			if announced >= int64(have) {
				size = min(max(size, min(int64(16*have), soonRoom)), announced+1) // one more, so that the end is seen
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

// End gives back what was taken.
func (in *Intake) End() {
	in.mu.Lock()
	in.over = true
	in.mu.Unlock()
	if in.kept != nil {
		in.leave()
	}
	in.held.End()
}
