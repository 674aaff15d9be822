package room

// Stretches is the number of periods in a Left.
const Stretches = 4

// Left records permits reserved for other replicas, and permits taken for demand that these had not
// received yet, by period: the current one and earlier ones.
type Left struct {
	list [Stretches]stretch // the current one first
	n    int                // number in use
}

type stretch struct {
	begun         int64
	theirs, eager float64
}

// Len returns the number of periods in use.
func (l *Left) Len() int { return l.n }

// Sum returns the permits reserved for others, and those taken without their knowledge.
func (l *Left) Sum() (theirs, eager float64) {
	for _, s := range l.list[:l.n] {
		theirs, eager = theirs+s.theirs, eager+s.eager
	}
	return theirs, eager
}

// Used releases reservations that others have used, oldest first.
func (l *Left) Used(n float64) {
	for i := l.n - 1; i >= 0; i-- {
		m := min(l.list[i].theirs, n)
		l.list[i].theirs, n = l.list[i].theirs-m, n-m
	}
}

// DropBefore drops periods that began before a time.
func (l *Left) DropBefore(before int64) {
	for i := 1; i < l.n; i++ {
		if l.list[i-1].begun <= before {
			l.n = i
		}
	}
}

// Turn starts a new period if the current one has lasted for after and a slot is free. It reports
// whether it did.
func (l *Left) Turn(now, after int64) bool {
	if l.n == Stretches || l.n > 0 && now-l.list[0].begun < after {
		return false
	}
	l.n++
	copy(l.list[1:], l.list[:])
	l.list[0] = stretch{begun: now}
	return true
}

// Add adds to the current period.
func (l *Left) Add(theirs, eager float64) {
	l.list[0].theirs += theirs
	l.list[0].eager += eager
}
