package monitor

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/grapevine-epp/grapevine/picker/health"
)

// The value of one endpoint's evidence: varints, in the order of appendEvidence.
// Ages are in milliseconds and one more, 0 for never. Fields are only appended.

var errWire = errors.New("monitor: malformed evidence from a peer")

const (
	flagRefused = 1 << iota
	flagTwice
	flagSlow
)

const (
	maxAge   = 24 * time.Hour
	maxCount = 1 << 48
)

func appendEvidence(b []byte, e *health.Evidence) []byte {
	b = binary.AppendUvarint(b, e.Good)
	b = binary.AppendUvarint(b, uint64(len(e.Bad)))
	for _, n := range e.Bad {
		b = binary.AppendUvarint(b, n)
	}
	flags := uint64(0)
	for bit, set := range map[uint64]bool{flagRefused: e.Refused, flagTwice: e.Twice, flagSlow: e.Slow} {
		if set {
			flags |= bit
		}
	}
	for _, v := range [...]uint64{e.Passed, e.Missed, flags, wireAge(e.Answered), wireAge(e.Moved), uint64(e.InFlight), uint64(e.Overdue), e.Denied} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func wireAge(d time.Duration) uint64 {
	if d > maxAge {
		return 0
	}
	return uint64(max(d, 0)/time.Millisecond) + 1
}

// cursor reads varints; the first error sticks.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) next() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 || v > maxCount {
		c.bad = true
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) age() time.Duration {
	v := c.next()
	if v == 0 {
		return health.Never
	}
	return time.Duration(min(v-1, uint64(maxAge/time.Millisecond))) * time.Millisecond
}

func readEvidence(b []byte) (health.Evidence, error) {
	c := cursor{b: b}
	e := health.Evidence{Good: c.next()}
	n := c.next()
	if n > 64 {
		return e, errWire
	}
	for i := range n {
		v := c.next()
		if i < uint64(len(e.Bad)) { // later versions may have more causes
			e.Bad[i] = v
		}
	}
	e.Passed, e.Missed = c.next(), c.next()
	flags := c.next()
	e.Refused, e.Twice, e.Slow = flags&flagRefused != 0, flags&flagTwice != 0, flags&flagSlow != 0
	e.Answered, e.Moved = c.age(), c.age()
	e.InFlight, e.Overdue = int(min(c.next(), 1<<24)), int(min(c.next(), 1<<24))
	if len(c.b) > 0 {
		e.Denied = c.next()
	}
	if c.bad {
		return health.Evidence{}, errWire
	}
	return e, nil
}
