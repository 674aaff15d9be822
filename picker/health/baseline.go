package health

import (
	"math"
	"time"
)

// baselineHalf is the half-life of a group's request counts.
const baselineHalf = 20 * time.Second

// baselinePrior is the number of good requests assumed of a group initially.
const baselinePrior = 50

// decayed counts the judged requests of one endpoint with exponential decay.
type decayed struct {
	requests float64
	bad      [NumCauses]float64
	at       time.Time
}

func (t *decayed) add(now time.Time, e *Evidence, half time.Duration) {
	if t.requests == 0 && e.Good == 0 && e.Bad == [NumCauses]uint64{} && t.bad == [NumCauses]float64{} {
		t.at = now // most endpoints of a large pool
		return
	}
	if !t.at.IsZero() && now.After(t.at) {
		t.fade(math.Exp2(-float64(now.Sub(t.at)) / float64(half)))
	}
	t.at = now
	t.requests += e.requests()
	for c := range t.bad {
		t.bad[c] += float64(e.Bad[c])
	}
}

// Parameters of an endpoint's recent results.
const (
	recentHalf = 2 * time.Second // half-life of counts above recentMost
	recentMost = 6.              // requests; counts up to this number do not decay
	recentFew  = 2.              // minimum requests for a verdict
	recentBad  = 1.5             // minimum bad requests for a verdict, since one may be chance
)

// addRecent is add with the decay of recent results.
func (t *decayed) addRecent(now time.Time, e *Evidence) {
	last := t.at
	t.add(now, e, baselineHalf)
	if t.requests > recentMost && now.After(last) {
		t.fade(max(recentMost/t.requests, math.Exp2(-float64(now.Sub(last))/float64(recentHalf))))
	}
}

func (t *decayed) fade(f float64) {
	t.requests *= f
	for c := range t.bad {
		t.bad[c] *= f
	}
}

func (t *decayed) merge(o *decayed) {
	t.requests += o.requests
	for c := range t.bad {
		t.bad[c] += o.bad[c]
	}
}

// fails returns the share of requests that failed with the given severity or a higher one. It
// returns 0 if there are too few requests.
func (t *decayed) fails(severity int) float64 {
	if t.requests < recentFew {
		return 0
	}
	bad := 0.
	for c := range NumCauses {
		if c.severity() >= severity {
			bad += t.bad[c]
		}
	}
	if bad < recentBad {
		return 0
	}
	return min(bad/t.requests, 1)
}

// baseline holds the results of the other endpoints of a group.
type baseline struct {
	requests  float64
	bad       [NumCauses]float64
	overruled bool // ignore soft evidence against the endpoint
}

func (b *baseline) add(t *decayed) {
	b.requests += t.requests
	for c := range b.bad {
		b.bad[c] += t.bad[c]
	}
}

// without returns the baseline minus one endpoint's contribution.
func (b baseline) without(t *decayed) baseline {
	b.requests = max(b.requests-t.requests, 0)
	for c := range b.bad {
		b.bad[c] = max(b.bad[c]-t.bad[c], 0)
	}
	return b
}

// rate returns the failure share to expect from a normal endpoint for a cause: twice the share
// observed at the others, to allow for chance.
func (b *baseline) rate(c Cause, usual float64) float64 {
	return min(max(2*b.bad[c]/(b.requests+baselinePrior), usual), 1)
}

// against returns the amount that a bad request adds to the score.
func (b *baseline) against(c Cause, usual float64) float64 {
	rate := b.rate(c, usual)
	if c == Cut {
		rate = b.cuts(usual)
	}
	return max(math.Log(unhealthyShare/rate), 0)
}

// cuts is rate for truncated answers. The share of clients that disconnect is estimated from the
// other endpoints, considering that only a sample of answers is observed to the end.
func (b *baseline) cuts(usual float64) float64 {
	return min(max((2*b.bad[Cut]+usual*baselinePrior)/(b.requests/endsSeen+baselinePrior), leastCuts), 1)
}

// Parameters for truncated answers.
const (
	endsSeen  = 5   // at least one of this many answers is observed to its end
	leastCuts = .02 // minimum share of answers that clients abandon
)

// inFavour returns the amount that a good request adds to the score. It is negative.
func (b *baseline) inFavour() float64 {
	worst := 0.
	for _, k := range counted {
		worst = max(worst, b.rate(k.cause, .01))
	}
	return min(math.Log((1-unhealthyShare)/(1-min(worst, .99))), -.05)
}
