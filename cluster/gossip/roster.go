package gossip

import (
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/memberlist"
)

// roster holds copies of the nodes that memberlist does not consider dead. memberlist modifies the
// nodes returned by Members under its own lock, so they are not safe to read. Safe for concurrent
// use.
type roster struct {
	mu    sync.Mutex
	nodes map[string]memberlist.Node
	self  memberlist.Node
}

// set stores a node that joined or changed. self is kept after it left, too.
func (r *roster) set(n *memberlist.Node, self bool) {
	c := *n
	c.Addr, c.Meta = slices.Clone(n.Addr), slices.Clone(n.Meta)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes == nil {
		r.nodes = map[string]memberlist.Node{}
	}
	r.nodes[c.Name] = c
	if self {
		r.self = c
	}
}

func (r *roster) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, name)
}

// all returns all nodes by name, including this member.
func (r *roster) all() []memberlist.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]memberlist.Node, 0, len(r.nodes))
	for _, n := range r.nodes {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b memberlist.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// own returns this member's node, with the address that other members see.
func (r *roster) own() memberlist.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.self
}

// elsewhere reports whether any node has a non-loopback address.
func (r *roster) elsewhere() bool {
	return slices.ContainsFunc(r.all(), func(n memberlist.Node) bool { return !n.Addr.IsLoopback() })
}
