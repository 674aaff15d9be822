package flow

// line is a list of a band's requests, newest last: the waiting ones, or the evictable ones in
// flight. A request is in at most one.
type line struct{ first, last int32 }

func (l *line) append(s []waiter, i int32) {
	s[i].prev, s[i].next = l.last, none
	if l.last != none {
		s[l.last].next = i
	} else {
		l.first = i
	}
	l.last = i
}

func (l *line) remove(s []waiter, i int32) {
	w := &s[i]
	if w.prev != none {
		s[w.prev].next = w.next
	} else {
		l.first = w.next
	}
	if w.next != none {
		s[w.next].prev = w.prev
	} else {
		l.last = w.prev
	}
	w.prev, w.next = none, none
}
