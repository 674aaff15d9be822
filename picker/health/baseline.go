package health

import (
	"math"
	"time"
)

// baselineHalf is the half-life of what a group's requests have shown.
const baselineHalf = 20 * time.Second

// baselinePrior is how many good requests are assumed of a group at first.
const baselinePrior = 50

// tally counts the judged requests of one endpoint, faded.
type tally struct {
	requests float64
	bad      [NumCauses]float64
	at       time.Time
}

func (t *tally) add(now time.Time, e *Evidence, half time.Duration) {
	if !t.at.IsZero() && now.After(t.at) {
		t.fade(math.Exp2(-float64(now.Sub(t.at)) / float64(half)))
	}
	t.at = now
	t.requests += e.requests()
	for c := range t.bad {
		t.bad[c] += float64(e.Bad[c])
	}
}

// What an endpoint's last requests say of how it is doing.
const (
	recentHalf = 2 * time.Second // half-life of what is more than
	recentMost = 6.              // requests, which count however long they take to come
	recentFew  = 2.              // that say nothing yet, and less than
	recentBad  = 1.5             // bad ones: one may be chance
)

// addRecent is add for the last requests.
func (t *tally) addRecent(now time.Time, e *Evidence) {
	last := t.at
	t.add(now, e, baselineHalf)
	if t.requests > recentMost && now.After(last) {
		t.fade(max(recentMost/t.requests, math.Exp2(-float64(now.Sub(last))/float64(recentHalf))))
	}
}

func (t *tally) fade(f float64) {
	t.requests *= f
	for c := range t.bad {
		t.bad[c] *= f
	}
}

func (t *tally) merge(o *tally) {
	t.requests += o.requests
	for c := range t.bad {
		t.bad[c] += o.bad[c]
	}
}

// fails returns the share of requests that ended badly for a cause of some severity, or a
// worse one.
func (t *tally) fails(severity int) float64 {
	bad := 0.
	for c := range NumCauses {
		if c.severity() >= severity {
			bad += t.bad[c]
		}
	}
	if t.requests < recentFew || bad < recentBad {
		return 0
	}
	return min(bad/t.requests, 1)
}

// baseline is what the other endpoints of a group show.
type baseline struct {
	requests  float64
	bad       [NumCauses]float64
	overruled bool // soft evidence against the endpoint is ignored
}

func (b *baseline) add(t *tally) {
	b.requests += t.requests
	for c := range b.bad {
		b.bad[c] += t.bad[c]
	}
}

// without returns the baseline less one endpoint's part.
func (b baseline) without(t *tally) baseline {
	b.requests = max(b.requests-t.requests, 0)
	for c := range b.bad {
		b.bad[c] = max(b.bad[c]-t.bad[c], 0)
	}
	return b
}

// rate returns the share of requests that end badly for a cause at endpoints
// that are like the others: twice what is seen there, to allow for chance.
func (b *baseline) rate(c Cause, usual float64) float64 {
	return min(max(2*b.bad[c]/(b.requests+baselinePrior), usual), 1)
}

// against returns how much a bad request adds to the score.
func (b *baseline) against(c Cause, usual float64) float64 {
	rate := b.rate(c, usual)
	if c == Cut {
		rate = b.cuts(usual)
	}
	return max(math.Log(sickShare/rate), 0)
}

// cuts is rate for answers that end in the middle: how many clients leave is learned from
// the others, as far as ends are seen.
func (b *baseline) cuts(usual float64) float64 {
	return min(max((2*b.bad[Cut]+usual*baselinePrior)/(b.requests/endsSeen+baselinePrior), leastCuts), 1)
}

// Of answers that end in the middle.
const (
	endsSeen  = 5   // of so many answers one is seen to its end, at least
	leastCuts = .02 // of answers, that clients leave
)

// inFavour returns how much a good request adds to the score, a negative number.
func (b *baseline) inFavour() float64 {
	worst := 0.
	for _, k := range counted {
		worst = max(worst, b.rate(k.cause, .01))
	}
	return min(math.Log((1-sickShare)/(1-min(worst, .99))), -.05)
}
