package federation

import "time"

// namesakes finds out whether several groups of replicas go by one name: two clusters to
// which one file was copied, or replicas that do not hear one another. What a cluster says
// and asks carries the print of its group. A group that takes the place of another is none:
// that one is not heard any more.
type namesakes struct {
	list    [4]group // heard last
	several bool
}

// group is a group of replicas that was heard.
type group struct {
	print       uint64    // 0: there is none
	first, last time.Time // without a pause
}

const (
	heardFor   = 3 // leases after it was heard for which a group counts as being there
	besidesFor = 2 // leases for which two are there before they count as two
)

// hear notes that a group was heard.
func (n *namesakes) hear(of uint64, now time.Time, lease time.Duration) {
	if of == 0 {
		return
	}
	oldest := 0
	for i := range n.list {
		g := &n.list[i]
		if g.print == of {
			if now.Sub(g.last) > heardFor*lease {
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

// look finds out whether there are several as of now, and reports whether that is new.
func (n *namesakes) look(now time.Time, lease time.Duration) (changed bool) {
	was := n.several
	n.several = false
	for i := range n.list {
		for k := range n.list[:i] {
			a, b := &n.list[i], &n.list[k]
			if a.print == 0 || b.print == 0 || now.Sub(a.last) > heardFor*lease || now.Sub(b.last) > heardFor*lease {
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

// SetPrint says by what the group of this replica is told from others that might have its
// cluster's name; 0: it is not known yet, or there is no group.
func (c *Core) SetPrint(p uint64) { c.print = p }
