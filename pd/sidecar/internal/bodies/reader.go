package bodies

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// Reader is how long a client may take nothing of its answer, as long as proxies let a stream
// be idle. Engines go on for clients that do not read, and keep blocks for them.
const Reader = 5 * time.Minute

// piece is how much is written before the client's time is renewed.
const piece = 64 << 10

// answer writes to a client that must go on reading. Where connections have no deadlines,
// nothing is demanded.
type answer struct {
	http.ResponseWriter
	conn  *http.ResponseController
	until time.Time // of the deadline in force
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (n int, err error) {
	for {
		a.renew()
		part := b[n:min(len(b), n+piece)]
		m, err := a.ResponseWriter.Write(part)
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// Flush implements http.Flusher.
func (a *answer) Flush() {
	a.renew()
	_ = a.conn.Flush() // there is nothing that could be done
}

// renew gives the client its whole time again, unless it has most of it.
func (a *answer) renew() {
	if now := time.Now(); a.until.Sub(now) < Reader*7/8 {
		a.until = now.Add(Reader)
		_ = a.conn.SetWriteDeadline(a.until)
	}
}

// Hijack implements http.Hijacker: who speaks another protocol has no deadline.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := a.conn.Hijack()
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	return c, rw, err
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
