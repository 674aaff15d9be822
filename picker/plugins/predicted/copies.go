package predicted

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// copies decides when a prefix is worth another copy, by the rent-or-buy rule (ski rental). A
// request that stays with a holder of its prefix pays rent: the amount by which it would be cheaper
// at the best other candidate if that candidate had the prefix too. Rents add up per prefix. Once
// they reach the price of a copy, copying would have paid. The next request with little other work
// is then sent to that candidate and creates the copy, and the price is deducted.
//
// The price is the loss to the copying request and to others. A request that would have waited at
// the holder about as long as the copy takes loses almost nothing. While a prefix is computed for
// the first time, an idle engine serves further requests as soon as that computation would, so a
// hot prefix spreads to many engines from the start. The cost to others, who gain nothing, must be
// covered CopyThreshold times, because past demand does not guarantee future demand.
//
// Accounts decay, faster if copies are evicted sooner. A rarely used prefix therefore never reaches
// the price, and a popular one is copied after some requests, before its holder has a queue.
//
// Prefixes nest, so rent counts for each prefix of the prompt that the holder has and the other
// candidate lacks, at a grid of lengths: a shared prefix is used more often than each of its
// extensions.
//
// Accounts are a fixed-size table of atomics. Two prefixes with the same slot replace each other,
// and of two simultaneous changes one may be lost.
type copies struct {
	slots [copySlots]copySlot
	churn churn // in tokens
	work  churn // in seconds of prefill
}

// churn estimates the turnover rate of caches from the decayed input of requests. A copy is kept at
// most until its engine's memory is refilled, so older rents have bought nothing.
type churn struct {
	mu    sync.Mutex
	sum   float64 // decayed input
	whole float64 // decayed seconds over which sum accumulated
	all   float64 // total input
	at    time.Time
}

// add adds a request's input, and returns the rate per second and the total.
func (c *churn) add(now time.Time, brings float64) (rate, all float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if passed := now.Sub(c.at); c.at.IsZero() {
		c.at = now
	} else if passed > 0 {
		faded := math.Exp(-float64(passed.Milliseconds()) / churnLife)
		c.at, c.sum, c.whole = now, c.sum*faded, c.whole*faded+passed.Seconds()
	}
	c.sum, c.all = c.sum+brings, c.all+brings
	return c.sum / max(c.whole, churnLeast), c.all
}

type copySlot struct {
	key     atomic.Uint64
	account atomic.Uint64 // seconds as float32 bits, and the time of the last change in milliseconds
}

const (
	copySlots  = 1 << 13
	copyLife   = 600e3 // maximum time constant of an account in milliseconds
	blindLife  = 60e3  // the same if the turnover rate is unknown
	churnLife  = 60e3  // time constant of the input in milliseconds
	churnLeast = 10    // minimum elapsed seconds for a rate
	copyGuard  = 1.25  // maximum work of a copying request, as a multiple of the price
	gridRatio  = 1.2   // ratio of consecutive lengths
)

func (t *copies) slot(key block.Key) *copySlot {
	return &t.slots[(uint64(key)^uint64(key)>>29)%copySlots]
}

// add adds rent to the account of a prefix, with a time constant of life milliseconds and a minimum
// of 0, and returns the balance.
func (t *copies) add(key block.Key, rent, life float64, ms uint32) float64 {
	s := t.slot(key)
	sum := 0.0
	if s.key.Load() == uint64(key) {
		word := s.account.Load()
		age := ms - uint32(word)
		if age < 1<<31 {
			sum = float64(math.Float32frombits(uint32(word>>32))) * math.Exp(-float64(age)/life)
		}
	} else {
		s.key.Store(uint64(key))
	}
	sum = max(sum+rent, 0)
	s.account.Store(uint64(math.Float32bits(float32(sum)))<<32 | uint64(ms))
	return sum
}

// spread moves the request to a candidate that lacks its prefix if the accounts justify a copy
// there.
func (s *scorer) spread(d *decision) {
	h := greatest(d.scores)
	held := d.Work(h)
	fills, brought := s.copies.churn.add(d.Now, float64(held.New)+d.answer)
	each := d.seen / float64(len(d.scores)) // tokens per candidate for each token seen here
	work, _ := s.copies.work.add(d.Now, d.owns[h])
	d.busy = min(work*each, mostBusy)
	l, there := s.cheapestCopy(d, h, held)
	rent := -d.scores[h] - there
	if l == h || rent <= 0 {
		return
	}
	life := blindLife
	d.full = 1
	if room := d.Cycle.At(l).Capacity; room > 0 && fills > 0 {
		life, d.full = min(copyLife, 1e3*room/(fills*each)), min(brought*each/room, 1)
	}
	a := account{rent: rent, life: life, price: s.copyPrice(d, h, l)}
	warms := s.warms(d, l, &a)
	switch {
	case !s.pay(d, h, l, a):
	case warms:
		s.warmUp(d, l)
	default:
		d.scores[l] = d.scores[h] + 1e-6
		s.copies.churn.add(d.Now, float64(d.Work(l).New-held.New))
		s.copies.work.add(d.Now, d.owns[l]-d.owns[h])
	}
}

// cheapestCopy returns the candidate without the prefix that would be cheapest if it held as much
// as holder h, and its cost. It returns h and its cost if none is cheaper.
func (s *scorer) cheapestCopy(d *decision, h int, held endpoint.Work) (l int, there float64) {
	l, there = h, -d.scores[h]
	tokens, pairs := float64(held.New), held.Pairs()
	chunks := s.chunks(held)
	for k, missing := range d.news {
		if missing <= tokens {
			continue // it holds as much, so its score already shows its cost
		}
		// The remaining terms are never negative, so they matter only for the few candidates that
		// are cheap enough.
		t := d.Terms(k)
		own := t.PerToken*tokens + t.PerPair*pairs
		first := d.waits[k] + own + chunks*t.Base
		others := own*(s.OwnWeight+s.delays(t)) + s.decode(t, d) + d.uneven*d.busys[k]
		if first+others >= there || s.beyond(d, k) > 0 {
			continue
		}
		v := d.At(k)
		p := s.predict(d, k, held)
		cost := s.cost(d, p)
		if cost += s.crossing(d, v, cost); cost < there {
			l, there = k, cost
		}
	}
	return l, there
}

// account is a request's effect on the accounts of its prefixes.
type account struct {
	rent  float64 // seconds
	price float64 // of the copy, in seconds
	life  float64 // time constant of the accounts in milliseconds
}

// pay adds the rent to the accounts of the prefixes that holder h has and candidate l lacks. It
// reports whether any account pays for the copy.
func (s *scorer) pay(d *decision, h, l int, a account) bool {
	held, missing := d.Work(h), d.Work(l)
	chunk := float64(max(d.Request.InputTokens, 1)) / float64(max(d.Chunks(), 1))
	from, to := float64(missing.Input-missing.New), float64(held.Input-held.New)
	price, own := a.price/(to-from), d.At(l).Cost.Prefill(missing)
	ms, buys := uint32(d.Now.UnixMilli()), false
	for at := 1.0; at <= to/chunk; at = max(math.Floor(at*gridRatio), at+1) {
		key, ok := d.PrefixKey(int(at))
		if news := at*chunk - from; ok && news > 0 {
			work := endpoint.Work{Input: int(at * chunk), New: int(news)}
			paid := s.copies.add(key, a.rent, a.life, ms) - a.rent
			buys = buys || paid >= price*news && own <= copyGuard*d.At(l).Cost.Prefill(work)
		}
	}
	if !buys {
		return false
	}
	for at := 1.0; at <= to/chunk; at = max(math.Floor(at*gridRatio), at+1) {
		key, ok := d.PrefixKey(int(at))
		if news := at*chunk - from; ok && news > 0 {
			s.copies.add(key, -a.rent-price*news, a.life, ms)
		}
	}
	return true
}

// copyPrice returns the balance needed to send the request to candidate l instead of holder h: the
// additional delay of the request, and CopyThreshold times the remaining cost to others.
//
// The work of the copy itself is in every cost with OwnWeight. In the price it counts as far as it
// delays others. A second of work in a queue with utilization ρ delays later requests by ρ / (1 −
// ρ) seconds in total, and a request that would have waited as long at the holder loses nothing. In
// an idle fleet, a popular prefix is therefore computed everywhere while its first computation
// runs. A copy that gives up a cache hit has its full price.
func (s *scorer) copyPrice(d *decision, h, l int) float64 {
	there, here := s.best(d, l), s.best(d, h)
	later := max(s.leaving(d, l, there)-there.Others-(s.leaving(d, h, here)-here.Others), 0)
	cost := d.At(l).Cost
	brings := cost.Prefill(d.Work(l)) - cost.Prefill(d.Work(h))
	own := s.OwnWeight * brings
	spare := own - min(max(s.OwnWeight*later, brings*d.busy/(1-d.busy)), own)
	return later + s.CopyThreshold*max(there.Others-here.Others-spare+brings*d.full, 0)
}

// leaving returns the cost of a prediction for candidate k with the price of leaving the zone.
func (s *scorer) leaving(d *decision, k int, p cycle.Prediction) float64 {
	cost := s.cost(d, p)
	return cost + s.crossing(d, d.At(k), cost)
}

func greatest(v []float64) int {
	at := 0
	for k, x := range v {
		if x > v[at] {
			at = k
		}
	}
	return at
}
