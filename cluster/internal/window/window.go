package window

// Size is how far a number may be behind the largest accepted one. The bits take 1 KiB and cover
// several seconds of a busy sender's messages.
const Size = 8192

// Verdict classifies a message number.
type Verdict uint8

// Verdicts.
const (
	New      Verdict = iota // not accepted before
	Repeated                // accepted before
	Old                     // too far behind to decide
)

// Window records which numbers were accepted. The zero value has accepted none.
type Window struct {
	top  uint64 // largest accepted number
	bits [Size / 64]uint64
}

// Classify classifies n without recording it.
func (w *Window) Classify(n uint64) Verdict {
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

// Take classifies n and records it if it is new.
func (w *Window) Take(n uint64) Verdict {
	v := w.Classify(n)
	if v != New {
		return v
	}
	if n > w.top {
		w.advance(n)
	}
	w.bits[n%Size/64] |= 1 << (n % 64)
	return New
}

// advance makes n the largest number and marks the numbers in between as not accepted.
func (w *Window) advance(n uint64) {
	if n-w.top >= Size {
		w.bits = [Size / 64]uint64{}
	} else {
		for i := w.top; i != n; { // not i <= n: n may be the largest uint64
			i++
			w.bits[i%Size/64] &^= 1 << (i % 64)
		}
	}
	w.top = n
}
