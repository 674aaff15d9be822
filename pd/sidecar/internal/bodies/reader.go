package bodies

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// Reader is how long a client may stop reading its response, equal to the idle timeout of proxies.
// Without this limit, engines would continue for clients that do not read, and keep their blocks.
const Reader = 5 * time.Minute

// piece is the number of bytes written between renewals of the deadline.
const piece = 64 << 10

// answer writes to a client that must keep reading. Connections without deadlines are not limited.
type answer struct {
	http.ResponseWriter
	conn  *http.ResponseController
	until time.Time // current deadline
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
	_ = a.conn.Flush() // the error cannot be handled
}

// renew extends the write deadline if more than an eighth has passed.
func (a *answer) renew() {
	if now := time.Now(); a.until.Sub(now) < Reader*7/8 {
		a.until = now.Add(Reader)
		_ = a.conn.SetWriteDeadline(a.until)
	}
}

// Hijack implements http.Hijacker. A hijacked connection has no deadline.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := a.conn.Hijack()
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	return c, rw, err
}

// Unwrap supports http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
