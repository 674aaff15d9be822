package gossip

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// roster holds copies of the nodes that memberlist does not consider dead, and of suspects: nodes
// that memberlist gave up while their streams still deliver. memberlist modifies the nodes returned by
// Members under its own lock, so they are not safe to read. Safe for concurrent use.
type roster struct {
	mu       sync.Mutex
	nodes    map[string]memberlist.Node
	since    map[string]time.Time // when nodes were added, by name
	suspects map[string]bool      // by name; also in nodes
	self     memberlist.Node
}

// set stores a node that joined or changed. self is kept after it left, too.
func (r *roster) set(n *memberlist.Node, self bool) {
	c := *n
	c.Addr, c.Meta = slices.Clone(n.Addr), slices.Clone(n.Meta)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes == nil {
		r.nodes, r.since, r.suspects = map[string]memberlist.Node{}, map[string]time.Time{}, map[string]bool{}
	}
	if _, known := r.nodes[c.Name]; !known {
		r.since[c.Name] = time.Now()
	}
	r.nodes[c.Name] = c
	delete(r.suspects, c.Name)
	if self {
		r.self = c
	}
}

// suspect marks a node that memberlist considers dead.
func (r *roster) suspect(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.nodes[name]; known {
		r.suspects[name] = true
	}
}

// settle removes the suspects that are not alive. It reports whether suspects remain.
func (r *roster) settle(alive func(name string, since time.Time) bool) (remain bool) {
	for name, since := range r.suspected() {
		if alive(name, since) { // takes the handler's lock, so r.mu is free
			remain = true
			continue
		}
		r.mu.Lock()
		if r.suspects[name] { // unless memberlist has reinstated it
			delete(r.suspects, name)
			delete(r.nodes, name)
			delete(r.since, name)
		}
		r.mu.Unlock()
	}
	return remain
}

// suspected returns when each suspect was added.
func (r *roster) suspected() map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]time.Time{}
	for name := range r.suspects {
		out[name] = r.since[name]
	}
	return out
}

// known returns the addresses of the nodes that memberlist does not consider dead.
func (r *roster) known() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]bool, len(r.nodes))
	for name, n := range r.nodes {
		if !r.suspects[name] {
			out[n.Address()] = true
		}
	}
	return out
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
