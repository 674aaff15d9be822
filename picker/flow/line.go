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

// insertSteps bounds the search of insert: a request that waited elsewhere for long is then only
// nearly at its place.
const insertSteps = 256

// insert adds i by its arrival.
func (l *line) insert(s []waiter, i int32) {
	after := l.last
	for n := 0; n < insertSteps && after != none && s[after].arrival > s[i].arrival; n++ {
		after = s[after].prev
	}
	if after == l.last {
		l.append(s, i)
		return
	}
	before := l.first
	if after != none {
		before = s[after].next
		s[after].next = i
	} else {
		l.first = i
	}
	s[i].prev, s[i].next = after, before
	s[before].prev = i
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
