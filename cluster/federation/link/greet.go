package link

import (
	"container/list"
	"net"
	"sync"
)

// maxConnections is the default limit of accepted connections.
const maxConnections = 4096

// greetings are the connections that have not authenticated yet. Their number is limited, and the
// oldest is closed for a new one. So silent connections keep no cluster out, because a legitimate
// peer authenticates within two round trips.
type greetings struct {
	most int
	mu   sync.Mutex
	list list.List // of net.Conn, oldest first
}

// begin adds a connection and reports whether it closed another one to make room.
func (g *greetings) begin(c net.Conn) (at *list.Element, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if closed = g.list.Len() >= g.most; closed {
		_ = g.list.Remove(g.list.Front()).(net.Conn).Close()
	}
	return g.list.PushBack(c), closed
}

// end removes a connection, unless it was already closed for another.
func (g *greetings) end(at *list.Element) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list.Remove(at)
}
