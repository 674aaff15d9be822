package predicted

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// copies decides when a prefix is worth one more copy, by the rent-or-buy rule
// (ski rental). A request that stays with a holder of its prefix pays rent: by so
// much it would be cheaper at the best other candidate, if that held the prefix
// too. The rents are added up for each prefix. Once they come to the price of a
// copy, copying would have paid: the next request that has little else to compute
// goes to that candidate and makes the copy, and the price is taken from the account.
//
// The price is what is lost by it, for whoever makes the copy and for others. Who
// would have waited at the holder nearly as long as the copy takes loses next to
// nothing: while a prefix is computed for the first time, those who ask for it too
// are as soon served by an idle engine as behind that computation, so a hot prefix is
// at many engines from the beginning, however many there are. What the copy costs
// others, who gain nothing by it, must be covered CopyThreshold times: a past in
// which a prefix was asked for is no promise that it will be.
//
// A prefix that few ask for never comes to it, since accounts fade, and the faster
// the sooner a copy would be displaced; one that many ask for is copied after some requests, before its holder has a queue.
//
// Prefixes nest, so rent counts for each beginning of the prompt that the holder
// has and the other lacks, at a grid of lengths: what siblings share is asked for
// more often than any of them.
//
// Accounts are a table of fixed size in atomics. Two prefixes that share a slot
// displace each other, and of two changes at the same moment one may be lost.
type copies struct {
	slots [copySlots]copySlot
	churn churn // of tokens
	work  churn // of seconds of prefill
}

// churn is how fast caches turn over: what requests brought to them, faded. A copy
// stays for no longer than its engine's memory takes to be filled anew, so rents that
// are older bought nothing.
type churn struct {
	mu    sync.Mutex
	sum   float64 // what came, faded
	whole float64 // seconds, faded alike: the time that sum is of
	all   float64 // what came since the beginning
	at    time.Time
}

// add counts what a request brings, and returns how much comes in a second and how
// much came since the beginning.
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
	account atomic.Uint64 // seconds as float32 bits, and milliseconds of the last change
}

const (
	copySlots  = 1 << 13
	copyLife   = 600e3 // most milliseconds in which an account fades to 1/e
	blindLife  = 60e3  // the same where nobody knows how fast the cache turns over
	churnLife  = 60e3  // milliseconds in which the memory of what came fades to 1/e
	churnLeast = 10    // seconds that count as passed from the beginning: what came in the first moment is no rate
	copyGuard  = 1.25  // most work of a request that makes a copy, in prices of it
	gridRatio  = 1.2   // from one length to the next
)

func (t *copies) slot(key block.Key) *copySlot {
	return &t.slots[(uint64(key)^uint64(key)>>29)%copySlots]
}

// add adds rent to the account of a prefix, which fades to 1/e in life
// milliseconds and is never below 0, and returns what is in it.
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

// spread moves the request to a candidate that lacks its prefix when the
// accounts say that a copy there pays.
func (s *scorer) spread(d *decision) {
	h := greatest(d.scores)
	held := d.Work(h)
	fills, brought := s.copies.churn.add(d.Now, float64(held.New)+d.answer)
	each := d.seen / float64(len(d.scores)) // what a candidate had of one token
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

// cheapestCopy returns the candidate that lacks the prefix and would be cheapest if it held as
// much as holder h, and its cost; h and its cost where none is cheaper.
func (s *scorer) cheapestCopy(d *decision, h int, held endpoint.Work) (l int, there float64) {
	l, there = h, -d.scores[h]
	for k, missing := range d.news {
		if int(missing) <= held.New || s.beyond(d, k) > 0 {
			continue // holds as much, so its cost speaks for itself; or must not be chosen
		}
		// Few candidates are cheap enough for the remaining terms, which are never negative, to matter.
		v := d.At(k)
		p := s.Predict(v.Cost, &v.Load, held, d.waits[k], d.answer)
		if s.cost(d, p) >= there {
			continue
		}
		p.Others += s.more(d, k, v, held)
		if cost := s.cost(d, p); cost < there {
			l, there = k, cost
		}
	}
	return l, there
}

// account is what a request does to the accounts of its prefixes.
type account struct {
	rent  float64 // seconds
	price float64 // of the copy, seconds
	life  float64 // milliseconds in which accounts fade to 1/e
}

// pay adds the rent to the accounts of the prefixes that holder h has and
// candidate l lacks, and reports whether one of them buys the copy there.
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

// copyPrice returns what the accounts must have to send the request to candidate l
// and not to holder h: by how much it will be later there than it would be anyhow,
// and CopyThreshold times what the copy costs others beyond that.
//
// The work of a copy itself, OwnWeight of which is in every cost, counts as far as it
// takes something from somebody: a second of work in a queue that is busy for the share
// ρ of the time delays those who come later by ρ / (1 − ρ) seconds in all, and who would
// have waited as long at the holder gives up nothing. In a fleet that is idle, a prefix
// that many ask for while it is computed for the first time is so computed everywhere
// at once; a copy for which somebody gives up a hit has its whole price.
func (s *scorer) copyPrice(d *decision, h, l int) float64 {
	there, here := s.best(d, l), s.best(d, h)
	later := max(s.cost(d, there)-there.Others-(s.cost(d, here)-here.Others), 0)
	cost := d.At(l).Cost
	brings := cost.Prefill(d.Work(l)) - cost.Prefill(d.Work(h))
	own := s.OwnWeight * brings
	spare := own - min(max(s.OwnWeight*later, brings*d.busy/(1-d.busy)), own)
	return later + s.CopyThreshold*max(there.Others-here.Others-spare+brings*d.full, 0)
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
