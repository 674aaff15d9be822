package room

// Stretches is how many stretches of time a Left tells apart.
const Stretches = 4

// Left is what was left to others, and what was taken for demand that they had not heard
// of, by when: in the stretch of time under way, and in those before.
type Left struct {
	list [Stretches]stretch // the one under way first
	n    int                // that are in use
}

type stretch struct {
	begun         int64
	theirs, eager float64
}

// Len returns how many stretches are in use.
func (l *Left) Len() int { return l.n }

// Sum returns what is left to others, and what was taken without their knowledge.
func (l *Left) Sum() (theirs, eager float64) {
	for _, s := range l.list[:l.n] {
		theirs, eager = theirs+s.theirs, eager+s.eager
	}
	return theirs, eager
}

// Used takes off what others have made use of, the oldest first.
func (l *Left) Used(n float64) {
	for i := l.n - 1; i >= 0; i-- {
		m := min(l.list[i].theirs, n)
		l.list[i].theirs, n = l.list[i].theirs-m, n-m
	}
}

// DropBefore drops what was left before a time.
func (l *Left) DropBefore(before int64) {
	for i := 1; i < l.n; i++ {
		if l.list[i-1].begun <= before {
			l.n = i
		}
	}
}

// Turn begins a new stretch where the one under way has lasted for so long and the oldest is
// over: else that one goes on. It reports whether it did.
func (l *Left) Turn(now, after int64) bool {
	if l.n == Stretches || l.n > 0 && now-l.list[0].begun < after {
		return false
	}
	l.n++
	copy(l.list[1:], l.list[:])
	l.list[0] = stretch{begun: now}
	return true
}

// Add counts in the stretch under way.
func (l *Left) Add(theirs, eager float64) {
	l.list[0].theirs += theirs
	l.list[0].eager += eager
}
