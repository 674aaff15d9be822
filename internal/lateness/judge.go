package lateness

import "time"

// Limits of a Judge.
const (
	tooLate  = 200 * time.Millisecond // a replica that is later may leave
	fine     = 50 * time.Millisecond  // a replica that is less late may return
	better   = 4                      // how many times less late the others must be
	holdTime = 3 * time.Second        // before it leaves
	backTime = 10 * time.Second       // fine for so long before it returns, after the first time
	backMost = 5 * time.Minute        // the pause doubles with each time, up to this
	forget   = 10 * time.Minute       // without leaving, until the pause is short again
	lostTime = 15 * time.Second       // without another ready replica before it returns
)

// Judge decides whether a replica leaves because it is later than the others. Not safe for
// concurrent use.
type Judge struct {
	out   bool
	since time.Time     // when the opposite state began to be right; zero: it is not
	alone time.Time     // since when no other replica is ready; zero: one is
	moved time.Time     // last change
	pause time.Duration // of the next return
}

// Step takes the lateness of this replica and of the other ready replicas at now, and reports
// whether this replica is out. The lateness of a replica that reports none is not in others.
// count is the number of other ready replicas with and without a report. A replica returns once it
// has known of no other ready one for a while; a late replica may lose contact although they work.
func (j *Judge) Step(now time.Time, own time.Duration, others []time.Duration, count int) (out bool) {
	if j.out {
		j.returns(now, own, count)
		return j.out
	}
	if own < tooLate || !mostAreBetter(own, others, count) {
		j.since = time.Time{}
		return false
	}
	if j.since.IsZero() {
		j.since = now
	}
	if now.Sub(j.since) >= holdTime {
		j.pause = min(2*j.pause, backMost)
		if j.pause == 0 || now.Sub(j.moved) > forget {
			j.pause = backTime
		}
		j.out, j.moved, j.since, j.alone = true, now, time.Time{}, time.Time{}
	}
	return j.out
}

func (j *Judge) returns(now time.Time, own time.Duration, count int) {
	if count > 0 {
		j.alone = time.Time{}
	} else if j.alone.IsZero() {
		j.alone = now
	}
	switch {
	case !j.alone.IsZero() && now.Sub(j.alone) >= lostTime:
	case own > fine:
		j.since = time.Time{}
		return
	case j.since.IsZero():
		j.since = now
		return
	case now.Sub(j.since) < j.pause:
		return
	}
	j.out, j.moved, j.since = false, now, time.Time{}
}

// mostAreBetter reports whether at least half of count other replicas, and at least one, are much
// less late.
func mostAreBetter(own time.Duration, others []time.Duration, count int) bool {
	n := 0
	for _, late := range others {
		if late*better < own {
			n++
		}
	}
	return n > 0 && 2*n >= count
}
