package kube

import "time"

// Bounds of pace.
const (
	maxPaces = 60 // the longest distance, in those of the first time
	maxRetry = 30 * time.Second
)

// pace says when one object may be written. It is pure: times are given.
type pace struct {
	differs time.Time // since when the object does not say what it should; zero: it does
	wrote   time.Time // last success
	said    string    // what was written then
	again   int       // how often in a row it was overwritten after that
	failed  int       // tries in a row
	retry   time.Time // not before
	err     error     // of the last try
}

// settled notes that the object says what it should.
func (p *pace) settled(now time.Time, o *Options) {
	p.differs, p.failed, p.retry, p.err = time.Time{}, 0, time.Time{}, nil
	if p.again > 0 && now.Sub(p.wrote) > maxPaces*o.Pace {
		p.again = 0 // it stood: whoever overwrote it does not do so for ever
	}
}

// distance is how long after writing something the same is written again.
func (p *pace) distance(o *Options) time.Duration {
	return min(o.Pace<<min(p.again, 6), maxPaces*o.Pace)
}

// due returns when the object may be written so that it says what, by a replica
// of that turn. The object differs from it now.
func (p *pace) due(what string, turn int, now time.Time, o *Options) time.Time {
	if p.differs.IsZero() {
		p.differs = now
	}
	at := p.differs.Add(time.Duration(turn) * o.Stagger)
	if !p.wrote.IsZero() {
		wait := o.Pace / 100 // a new value, soon after another
		if what == p.said {
			wait = p.distance(o)
		}
		if next := p.wrote.Add(wait); next.After(at) {
			at = next
		}
	}
	if p.retry.After(at) {
		at = p.retry
	}
	return at
}

// done notes a try, and reports whether it wrote again what somebody overwrote.
func (p *pace) done(what string, err error, wrote bool, now time.Time) (reasserted bool) {
	if p.err = err; err != nil {
		p.retry = now.Add(min(time.Second<<min(p.failed, 10), maxRetry))
		p.failed++
		return false
	}
	p.failed, p.retry, p.differs = 0, time.Time{}, time.Time{}
	if !wrote {
		return false
	}
	reasserted = what == p.said
	if reasserted {
		p.again++
	}
	p.wrote, p.said = now, what
	return reasserted
}
