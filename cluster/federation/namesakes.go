package federation

import "time"

// namesakes detects several replica groups that use one cluster name: two clusters with a copy of
// the same file, or replicas that cannot reach each other. A cluster's messages carry its group's
// print. A group that replaces another does not count, because the old one falls silent.
type namesakes struct {
	list    [4]group // heard most recently
	several bool
}

// group is a replica group that was heard.
type group struct {
	print       uint64    // 0: unused
	first, last time.Time // of an unbroken period
}

const (
	presentFor = 3 // leases for which a group counts as present after its last message
	besidesFor = 2 // leases for which two groups must be present to count as two
)

// hear records a message of a group.
func (n *namesakes) hear(of uint64, now time.Time, lease time.Duration) {
	if of == 0 {
		return
	}
	oldest := 0
	for i := range n.list {
		g := &n.list[i]
		if g.print == of {
			if now.Sub(g.last) > presentFor*lease {
				g.first = now
			}
			g.last = now
			return
		}
		if g.last.Before(n.list[oldest].last) {
			oldest = i
		}
	}
	n.list[oldest] = group{of, now, now}
}

// look updates several as of now and reports whether it changed.
func (n *namesakes) look(now time.Time, lease time.Duration) (changed bool) {
	was := n.several
	n.several = false
	for i := range n.list {
		for k := range n.list[:i] {
			a, b := &n.list[i], &n.list[k]
			if a.print == 0 || b.print == 0 || now.Sub(a.last) > presentFor*lease || now.Sub(b.last) > presentFor*lease {
				continue
			}
			until, from := a.last, later(a.first, b.first)
			if b.last.Before(until) {
				until = b.last
			}
			n.several = n.several || until.Sub(from) > besidesFor*lease
		}
	}
	return n.several != was
}

// SetPrint sets the ID of this replica's group, which distinguishes it from other groups with the
// same cluster name. 0 means unknown, or no group.
func (c *Core) SetPrint(p uint64) { c.print = p }
