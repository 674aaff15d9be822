package link

import (
	"container/list"
	"net"
	"sync"
)

// maxConnections is how many connections are held that others made, where Options say
// nothing.
const maxConnections = 4096

// greetings are the connections whose other end has not shown yet who it is. There are
// so many at most; the oldest gives way to the next, so that strangers keep nobody out by
// saying nothing: whoever has a certificate shows it in two round trips.
type greetings struct {
	most int
	mu   sync.Mutex
	list list.List // of net.Conn, the oldest first
}

// begin notes a connection and reports whether another one was closed for it.
func (g *greetings) begin(c net.Conn) (at *list.Element, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if closed = g.list.Len() >= g.most; closed {
		_ = g.list.Remove(g.list.Front()).(net.Conn).Close()
	}
	return g.list.PushBack(c), closed
}

// end forgets a connection; one that gave way is forgotten already.
func (g *greetings) end(at *list.Element) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list.Remove(at)
}
