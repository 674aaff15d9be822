package kube

import (
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// Limits of pace.
const (
	maxPaces = 60 // longest delay, as a multiple of the first
	maxRetry = 30 * time.Second
)

// pace determines when one object may be written. It is pure: times are arguments.
type pace struct {
	differs time.Time // since when the object has differed from the plan; zero: it does not
	wrote   time.Time // last successful write
	content string    // content of that write
	again   int       // consecutive times it was overwritten after that
	failed  int       // consecutive failures
	retry   time.Time // earliest next attempt
	err     error     // of the last attempt
	denied  time.Time // since when attempts have lacked a permission; zero: they do not
}

// problem returns the reason of a failed write for other clusters. An API server that starts denies
// requests before it has read its rules, so a missing permission counts only after a while.
func (p *pace) problem(err error, now time.Time, o *Options) string {
	if !kubeapi.IsForbidden(err) {
		p.denied = time.Time{}
		return writeProblem(err)
	}
	if p.denied.IsZero() {
		p.denied = now
	}
	if now.Sub(p.denied) < o.Grace {
		return ""
	}
	return writeProblem(err)
}

// settled records that the object matches the plan.
func (p *pace) settled(now time.Time, o *Options) {
	p.differs, p.failed, p.retry, p.err = time.Time{}, 0, time.Time{}, nil
	if p.again > 0 && now.Sub(p.wrote) > maxPaces*o.Pace {
		p.again = 0 // the write lasted: the other writer does not overwrite it permanently
	}
}

// distance is how long to wait before writing the same content again.
func (p *pace) distance(o *Options) time.Duration {
	return min(o.Pace<<min(p.again, 6), maxPaces*o.Pace)
}

// due returns when a replica with that turn may write the content what to the object, whose content
// differs now.
func (p *pace) due(what string, turn int, now time.Time, o *Options) time.Time {
	if p.differs.IsZero() {
		p.differs = now
	}
	at := p.differs.Add(time.Duration(turn) * o.Stagger)
	if !p.wrote.IsZero() {
		wait := o.Pace / 100 // new content, soon after another write
		if what == p.content {
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

// done records an attempt. It reports whether it rewrote overwritten content.
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
	reasserted = what == p.content
	if reasserted {
		p.again++
	}
	p.wrote, p.content = now, what
	return reasserted
}
