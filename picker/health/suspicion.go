package health

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Suspicion is one replica's evidence that an endpoint fails a value of a trait. Alone it does not suffice
// to avoid the endpoint. Replicas add up their evidence, because each of them sees only a part of the
// failures.
type Suspicion struct {
	Key    uint64  // hash of the value
	Score  float64 // log-likelihood ratio
	Others int     // requests of other values answered in the same time
}

// peerSuspicion is the last report of another replica.
type peerSuspicion struct {
	Suspicion
	origin string
	at     time.Time
}

const (
	maxPeerSuspicions = 256
	// mostPeers is how many other replicas' scores count. Each may be chance, so that the sum over many
	// replicas would exceed any limit.
	mostPeers = 2
)

// Suspicions appends this replica's evidence on values that are not avoided yet. The version that
// [Tracker.Found] returns covers them.
func (t *Tracker) Suspicions(list []Suspicion, now time.Time) []Suspicion {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.avoided.list {
		e := &t.avoided.list[i]
		if score := e.scoreAt(now); e.key != 0 && e.times == 0 && score >= clearBelow {
			list = append(list, Suspicion{e.key, score, e.others})
		}
	}
	return list
}

// ReceiveSuspicions replaces the suspicions of another replica.
func (t *Tracker) ReceiveSuspicions(origin string, list []Suspicion, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.avoided
	if len(list) == 0 && len(s.peers) == 0 {
		return
	}
	s.peers = slices.DeleteFunc(s.peers, func(p peerSuspicion) bool { return p.origin == origin || now.Sub(p.at) > avoidHalf })
	for _, o := range list[:min(len(list), maxAvoidances, maxPeerSuspicions-len(s.peers))] {
		if o.Key != 0 && o.Score > 0 {
			o.Score, o.Others = min(o.Score, maxScore), max(o.Others, 0)
			s.peers = append(s.peers, peerSuspicion{o, origin, now})
		}
	}
	for i := range s.list {
		s.decide(&s.list[i], now)
	}
}

// pooled returns the evidence of this replica and others on a value.
func (s *avoidances) pooled(e *avoidance, now time.Time) (score float64, others int) {
	others = e.others
	var scores []float64
	for i := range s.peers {
		if p := &s.peers[i]; p.Key == e.key && now.Sub(p.at) <= avoidHalf {
			scores = append(scores, p.Score*math.Exp2(-float64(max(now.Sub(p.at), 0))/float64(avoidHalf)))
			others += p.Others
		}
	}
	slices.SortFunc(scores, func(a, b float64) int { return cmp.Compare(b, a) })
	score = e.scoreAt(now)
	for _, x := range scores[:min(len(scores), mostPeers)] {
		score += x
	}
	return score, others
}

// forgetPeers removes the suspicions of other replicas against a value that an answer has cleared.
func (s *avoidances) forgetPeers(key uint64) {
	if len(s.peers) > 0 {
		s.peers = slices.DeleteFunc(s.peers, func(p peerSuspicion) bool { return p.Key == key })
	}
}

// scoreAt returns the decayed score.
func (e *avoidance) scoreAt(now time.Time) float64 {
	return e.score * math.Exp2(-float64(max(now.Sub(e.at), 0))/float64(avoidHalf))
}
