package monitor

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/grapevine-epp/grapevine/picker/health"
)

// Wire format of one endpoint's evidence: varints in the order of appendEvidence. Ages are in
// milliseconds plus one; 0 means never. New fields are appended only.

var errWire = errors.New("monitor: malformed evidence from a peer")

const (
	flagRefused = 1 << iota
	flagTwice
	flagSlow
	flagStarved
)

const (
	maxAge   = 24 * time.Hour
	maxCount = 1 << 48
)

// appendEvidence encodes a replica's evidence on an endpoint, the models that it found to fail there,
// and those that may.
func appendEvidence(b []byte, e *health.Evidence, found []health.ModelAvoidance, suspected []health.Suspicion) []byte {
	b = binary.AppendUvarint(b, e.Good)
	b = binary.AppendUvarint(b, uint64(len(e.Bad)))
	for _, n := range e.Bad {
		b = binary.AppendUvarint(b, n)
	}
	flags := uint64(0)
	for bit, set := range map[uint64]bool{flagRefused: e.Refused, flagTwice: e.Twice, flagSlow: e.Slow, flagStarved: e.Starved} {
		if set {
			flags |= bit
		}
	}
	for _, v := range [...]uint64{e.Passed, e.Missed, flags, wireAge(e.Answered), wireAge(e.Moved), uint64(e.InFlight), uint64(e.Overdue), e.Denied} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendUvarint(b, uint64(len(found)))
	for _, f := range found {
		for _, v := range [...]uint64{f.Model >> 32, f.Model & math.MaxUint32, uint64(max(f.For, 0) / time.Millisecond), uint64(f.Times)} {
			b = binary.AppendUvarint(b, v)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(suspected)))
	for _, f := range suspected {
		for _, v := range [...]uint64{f.Key >> 32, f.Key & math.MaxUint32, uint64(math.Round(max(f.Score, 0) * scoreUnit)), uint64(max(f.Others, 0))} {
			b = binary.AppendUvarint(b, v)
		}
	}
	b = binary.AppendUvarint(b, uint64(e.Failing))
	return b
}

func wireAge(d time.Duration) uint64 {
	if d > maxAge {
		return 0
	}
	return uint64(max(d, 0)/time.Millisecond) + 1
}

// cursor reads varints. The first error sticks.
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

func readEvidence(b []byte) (health.Evidence, []health.ModelAvoidance, []health.Suspicion, error) {
	c := cursor{b: b}
	e := health.Evidence{Good: c.next()}
	n := c.next()
	if n > 64 {
		return e, nil, nil, errWire
	}
	for i := range n {
		v := c.next()
		if i < uint64(len(e.Bad)) { // later versions may have more causes
			e.Bad[i] = v
		}
	}
	e.Passed, e.Missed = c.next(), c.next()
	flags := c.next()
	e.Refused, e.Twice, e.Slow, e.Starved = flags&flagRefused != 0, flags&flagTwice != 0, flags&flagSlow != 0, flags&flagStarved != 0
	e.Answered, e.Moved = c.age(), c.age()
	e.InFlight, e.Overdue = int(min(c.next(), 1<<24)), int(min(c.next(), 1<<24))
	if len(c.b) > 0 {
		e.Denied = c.next()
	}
	found, suspected := c.found(), c.suspected()
	if len(c.b) > 0 {
		e.Failing = health.Question(min(c.next(), math.MaxUint8))
	}
	if c.bad {
		return health.Evidence{}, nil, nil, errWire
	}
	return e, found, suspected, nil
}

// maxFound exceeds the number of failing models that a replica reports per endpoint.
const maxFound = 64

// found decodes the failing models. Older versions do not send them.
func (c *cursor) found() (found []health.ModelAvoidance) {
	if len(c.b) == 0 {
		return nil
	}
	for range c.length() {
		if c.bad {
			return nil
		}
		f := health.ModelAvoidance{Model: c.key()}
		f.For = time.Duration(min(c.next(), uint64(maxAge/time.Millisecond))) * time.Millisecond
		f.Times = int(min(c.next(), 1<<24))
		found = append(found, f)
	}
	return found
}

// suspected decodes the values that may fail. Older versions do not send them.
func (c *cursor) suspected() (list []health.Suspicion) {
	if len(c.b) == 0 {
		return nil
	}
	for range c.length() {
		if c.bad {
			return nil
		}
		list = append(list, health.Suspicion{Key: c.key(), Score: float64(min(c.next(), maxScore)) / scoreUnit, Others: int(min(c.next(), 1<<24))})
	}
	return list
}

// scoreUnit is the resolution of a score, and maxScore exceeds every score.
const (
	scoreUnit = 100
	maxScore  = 100 * scoreUnit
)

// length decodes the length of a list.
func (c *cursor) length() uint64 {
	n := c.next()
	if n > maxFound {
		c.bad = true
		return 0
	}
	return n
}

// key decodes a hash.
func (c *cursor) key() uint64 {
	high, low := c.next(), c.next()
	c.bad = c.bad || high|low > math.MaxUint32
	return high<<32 | low
}
