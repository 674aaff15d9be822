package sidecar

import (
	"errors"
	"io"
	"net/http"
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
	w      http.ResponseWriter
	r      *http.Request
	budget *memory.Budget
	taken  atomic.Int64
}

// receive reads the request's body from a reader, up to a limit. Its bytes are taken from
// the budget as they come: who announces many and sends none takes nothing.
func (in *intake) receive(from io.ReadCloser, limit int64) ([]byte, error) {
	size := limit
	if n := in.r.ContentLength; n >= 0 {
		size = min(size, n)
	}
	c := http.NewResponseController(in.w)
	_ = c.SetReadDeadline(time.Now().Add(bodyPatience + time.Duration(size/bodySpeed)*time.Second)) // where connections have none, they wait
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	return readAll(charged{in, http.MaxBytesReader(in.w, from, limit)}, in.r.ContentLength)
}

// firstRead is how much of a body is read at first.
const firstRead = 4 << 10

// readAll reads to the end. The buffer has twice what has come at most, and where all of it
// is known (announced >= 0) sixteen times, and no more than all: bodies are announced and
// then not sent.
func readAll(r io.Reader, announced int64) ([]byte, error) {
	var text []byte
	for {
		if have := len(text); have == cap(text) {
			size := int64(max(2*have, firstRead))
			if announced >= int64(have) {
				size = min(max(size, int64(16*have)), announced+1) // one more, so that the end is seen
			}
			text = append(make([]byte, 0, size), text...)
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
func (in *intake) end() { in.budget.Give(memory.Bodies, int(in.taken.Load())) }

// charged takes what it reads from the budget.
type charged struct {
	in *intake
	r  io.Reader
}

// Read implements io.Reader.
func (c charged) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if !c.in.budget.Take(memory.Bodies, n) {
		return 0, errMemory
	}
	c.in.taken.Add(int64(n))
	return n, err
}
