package window

// Size is how far a number may be behind the largest that was taken: a kilobyte of bits,
// and several seconds of a busy sender's messages.
const Size = 8192

// Verdict says what a number is.
type Verdict uint8

// Verdicts.
const (
	New      Verdict = iota // not taken before
	Repeated                // taken before
	Old                     // too far behind to tell
)

// Window remembers which numbers were taken. The zero value has taken none.
type Window struct {
	top  uint64 // the largest that was taken
	bits [Size / 64]uint64
}

// Look says what n is, and remembers nothing.
func (w *Window) Look(n uint64) Verdict {
	switch {
	case n > w.top:
		return New
	case n == 0 || w.top-n >= Size:
		return Old
	case w.bits[n%Size/64]>>(n%64)&1 != 0:
		return Repeated
	}
	return New
}

// Take says what n is; if it is new it will be repeated from now on.
func (w *Window) Take(n uint64) Verdict {
	v := w.Look(n)
	if v != New {
		return v
	}
	if n > w.top {
		w.advance(n)
	}
	w.bits[n%Size/64] |= 1 << (n % 64)
	return New
}

// advance makes n the largest. What lies between was not taken.
func (w *Window) advance(n uint64) {
	if n-w.top >= Size {
		w.bits = [Size / 64]uint64{}
	} else {
		for i := w.top; i != n; { // n may be the largest number that there is
			i++
			w.bits[i%Size/64] &^= 1 << (i % 64)
		}
	}
	w.top = n
}
