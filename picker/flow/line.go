package flow

// line is a list of requests of a band, the newest last: of those that wait, or of those
// in flight that may be ended. A request is in one of them at a time.
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
