package faults

import (
	"net"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
)

// Hang is how an engine hangs.
type Hang string

// Ways to hang.
const (
	HangNone Hang = ""
	// HangEngine: no step begins. The HTTP server still handles requests that need no step.
	HangEngine Hang = "engine"
	// HangAll: the HTTP server does not respond either.
	HangAll Hang = "all"
	// HangFrozen: connections are accepted and stay open, but nothing is read or written, as with a
	// stopped process or a network partition.
	HangFrozen Hang = "frozen"
)

// Known reports whether h is a defined value.
func (h Hang) Known() bool {
	return h == HangNone || h == HangEngine || h == HangAll || h == HangFrozen
}

// Answer is a defect of responses with a success status.
type Answer string

// Wrong answers.
const (
	AnswerSound Answer = ""
	AnswerAbort Answer = "abort" // no text, finish_reason abort
	AnswerEmpty Answer = "empty" // no choices
	AnswerHalf  Answer = "half"  // whole answers: half of the body, then silence
	AnswerModel Answer = "model" // of another model
	AnswerNoise Answer = "noise" // one character, repeated, as from logits that are not numbers
	AnswerShort Answer = "short" // a tenth of the tokens
	AnswerCut   Answer = "cut"   // half of the answer, without a finish reason, and a normal end

	AnswerError   Answer = "error"   // an error object, or an error event in a stream
	AnswerNothing Answer = "nothing" // no body
	AnswerHTML    Answer = "html"    // a page of HTML
	AnswerBytes   Answer = "bytes"   // bytes that are no text
	AnswerLength  Answer = "length"  // a body that is shorter than its Content-Length
	AnswerTwice   Answer = "twice"   // streams: every event twice
)

// Known reports whether a is a defined value.
func (a Answer) Known() bool {
	switch a {
	case AnswerSound, AnswerAbort, AnswerEmpty, AnswerHalf, AnswerModel, AnswerNoise, AnswerShort, AnswerCut,
		AnswerError, AnswerNothing, AnswerHTML, AnswerBytes, AnswerLength, AnswerTwice:
		return true
	}
	return false
}

// Faults are an engine's faults, except faults of its event stream. The zero value has none.
type Faults struct {
	ErrorNext   int     `json:"error_next"`   // inference requests that are refused, from the next on
	ErrorShare  float64 `json:"error_share"`  // share of inference requests that are refused
	ErrorOnly   string  `json:"error_only"`   // of requests that contain it; "": of all
	ErrorStatus int     `json:"error_status"` // with this status; default 500
	Slow        float64 `json:"slow"`         // factor on step times; 0: 1
	Hang        Hang    `json:"hang"`
	Garbage     bool    `json:"garbage"`     // inference requests are answered with 200 and no JSON
	Answer      Answer  `json:"answer"`      // defect of responses with status 200
	ResetShare  float64 `json:"reset_share"` // share of inference requests whose connection is reset
	ResetAfter  int     `json:"reset_after"` // tokens of a stream before that; 0: before the answer

	ListStatus int           `json:"list_status"` // GET /v1/models is answered with; 0: with the list
	ListDelay  time.Duration `json:"list_delay"`  // before it is

	Poison string        `json:"poison"` // the engine dies of a request that contains it
	Up     time.Duration `json:"up"`     // the engine dies repeatedly, this long after each start; 0: it does not
	Down   time.Duration `json:"down"`   // how long one that died refuses connections

	Events kvstream.Faults `json:"events"` // on every rank
}

// Spread picks a share of requests, evenly: request n when n·share passes a
// whole number.
type Spread struct{ count uint64 }

// Next reports whether the next one is among them.
func (s *Spread) Next(share float64) bool {
	s.count++
	return uint64(float64(s.count)*share) > uint64(float64(s.count-1)*share)
}

// Gate blocks callers while it is shut. Its zero value is open.
type Gate struct {
	mu   sync.Mutex
	open chan struct{} // nil: it is not shut
}

// Set shuts or opens the gate.
func (g *Gate) Set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case shut && g.open == nil:
		g.open = make(chan struct{})
	case !shut && g.open != nil:
		close(g.open)
		g.open = nil
	}
}

// Pass waits until the gate is open, or gone is closed.
func (g *Gate) Pass(gone <-chan struct{}) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return
	}
	select {
	case <-open:
	case <-gone:
	}
}

// Listener gives connections that freeze with the engine.
type Listener struct {
	net.Listener
	Wire *Gate
}

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, wire: l.Wire, gone: make(chan struct{})}, nil
}

// conn is a connection of a Listener.
type conn struct {
	net.Conn
	wire *Gate
	once sync.Once
	gone chan struct{}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wire.Pass(c.gone)
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.wire.Pass(c.gone)
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

// Reset ends a connection of a Listener with a reset.
func Reset(c net.Conn) {
	if c, ok := c.(*conn); ok {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // the connection is reset in any case
		}
	}
	_ = c.Close()
}
