package sidecar

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	memory "github.com/grapevine-epp/grapevine/internal/budget"
)

const (
	// bodyPatience is how long a body may take to come, and bodySpeed the bytes a second
	// that buy it more.
	bodyPatience = 30 * time.Second
	bodySpeed    = 64 << 10
)

var errMemory = errors.New("sidecar: no memory left for a body")

// intake is what a request has taken of the memory for bodies: its own, and those of the
// answers that are read whole.
type intake struct {
	w    http.ResponseWriter
	r    *http.Request
	held memory.Holder

	mu      sync.Mutex
	over    bool // the request has ended
	starved bool // its body is to break off: the memory is needed

	kept    []byte       // the request's body
	readers atomic.Int32 // of it: legs' bodies, and the request itself
}

// receive reads the request's body from a reader, up to a limit. The room for it is taken from
// the budget as it grows: who announces many and sends none takes 4 KiB.
func (in *intake) receive(from io.ReadCloser, limit int64) ([]byte, error) {
	in.readers.Add(1)
	in.held.Wait()
	text, err := readInto(in.grow, http.MaxBytesReader(in.w, from, limit), in.r.ContentLength)
	in.held.Keep()
	if in.kept = text; err != nil && in.isStarved() {
		err = errMemory
	}
	return text, err
}

// grow returns a larger buffer with what has come, nil where there is no memory for it;
// small buffers of requests are powers of two.
func (in *intake) grow(have []byte, size int) []byte {
	if !in.held.Take(roomOf(size) - cap(have)) {
		return nil
	}
	larger := append(buffer(size), have...)
	recycle(have)
	return larger
}

// leave ends a look at the request's body; the last one gives the buffer back.
func (in *intake) leave() {
	if in.readers.Add(-1) == 0 {
		recycle(in.kept)
	}
}

// pace has the request's body break off where it comes too slowly, whoever reads it, whether
// it is kept, passed on or refused unread: the server waits for the rest before it answers.
func (in *intake) pace() {
	if in.r.Body == nil || in.r.Body == http.NoBody {
		return
	}
	p := &paced{ReadCloser: in.r.Body, in: in, begun: time.Now()}
	in.deadline(p.begun.Add(bodyPatience))
	in.r.Body = p
}

type paced struct {
	io.ReadCloser
	in    *intake
	begun time.Time
	read  int64
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	p.in.deadline(p.begun.Add(bodyPatience + time.Duration(p.read/bodySpeed)*time.Second))
	n, err := p.ReadCloser.Read(b)
	if p.read += int64(n); errors.Is(err, io.EOF) {
		p.in.deadline(time.Time{}) // the answer may take its time
	}
	return n, err
}

// deadline bounds the wait for the client, as long as the connection is this request's: a leg
// may read a body after its request has ended. Where connections have no deadlines, they wait.
func (in *intake) deadline(at time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.over && !in.starved {
		_ = http.NewResponseController(in.w).SetReadDeadline(at)
	}
}

// starve has the request's body break off, for another one that needs its memory.
func (in *intake) starve() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.starved = true; !in.over {
		_ = http.NewResponseController(in.w).SetReadDeadline(time.Unix(1, 0))
	}
}

func (in *intake) isStarved() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.starved
}

// firstRead is how much of a body is read at first.
const firstRead = 4 << 10

// soonRoom is the room that a body may have that is known to become as large, once a sixteenth
// of it has come.
const soonRoom = 1 << 20

// readAll reads an answer to the end, into memory that is taken from the budget as receive does.
func (in *intake) readAll(r io.Reader, announced int64) ([]byte, error) {
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
				return text, errMemory
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

// end gives back what was taken.
func (in *intake) end() {
	in.mu.Lock()
	in.over = true
	in.mu.Unlock()
	if in.kept != nil {
		in.leave()
	}
	in.held.End()
}
