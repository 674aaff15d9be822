package flow

import "github.com/grapevine-epp/grapevine/picker/flow/rules"

// Usually few flows wait, and the next one is found by a scan. Many flows form a heap by score. A
// change of one score sifts that flow. A change of all scores (new gauges or shares) rebuilds the
// heap when it is next needed.

const (
	mostScanned = 8  // waiting flows without a heap
	mostLooked  = 64 // flows searched for a head that fits
)

// many reports whether a heap is worthwhile. Scores of LeastService change with time, so up to
// fewFlows flows are scanned.
func (b *band) many() bool {
	if b.Fairness == rules.LeastService {
		return len(b.busy) > fewFlows
	}
	return len(b.busy) > mostScanned
}

// goesBefore orders flows in the heap.
func goesBefore(f, g *flow) bool {
	if f.score != g.score {
		return f.score < g.score
	}
	return f.servedAt < g.servedAt
}

// rank builds the heap of waiting flows if there is none.
func (b *band) rank(s []waiter, now int64) {
	// Scores of LeastService depend on time and on all other flows' service.
	if b.ranked && (b.Fairness != rules.LeastService || now-b.rankedAt < shareEvery) {
		return
	}
	b.normalize(s, now)
	for _, f := range b.busy {
		f.score = b.scoreOf(f, &s[f.heap.items[0]])
	}
	b.ranked, b.rankedAt = true, now
	for at := len(b.busy)/2 - 1; at >= 0; at-- {
		b.sink(at)
	}
}

// resort repositions a waiting flow after its score may have changed.
func (b *band) resort(s []waiter, f *flow) {
	if !b.ranked || f.at < 0 {
		return
	}
	f.score = b.scoreOf(f, &s[f.heap.items[0]])
	b.rise(f.at)
	b.sink(f.at)
}

func (b *band) rise(at int) {
	for at > 0 {
		parent := (at - 1) / 2
		if !goesBefore(b.busy[at], b.busy[parent]) {
			return
		}
		b.swap(at, parent)
		at = parent
	}
}

func (b *band) sink(at int) {
	for {
		least := 2*at + 1
		if least >= len(b.busy) {
			return
		}
		if right := least + 1; right < len(b.busy) && goesBefore(b.busy[right], b.busy[least]) {
			least = right
		}
		if !goesBefore(b.busy[least], b.busy[at]) {
			return
		}
		b.swap(at, least)
		at = least
	}
}

func (b *band) swap(i, j int) {
	b.busy[i], b.busy[j] = b.busy[j], b.busy[i]
	b.busy[i].at, b.busy[j].at = i, j
}

// enlist adds a flow to the waiting ones.
func (b *band) enlist(s []waiter, f *flow) {
	f.at = len(b.busy)
	b.busy = append(b.busy, f)
	b.resort(s, f)
}

// unbusy removes a flow from the waiting ones.
func (b *band) unbusy(s []waiter, f *flow) {
	at, last := f.at, len(b.busy)-1
	b.swap(at, last)
	b.busy[last] = nil
	b.busy, f.at = b.busy[:last], -1
	if at < last {
		b.resort(s, b.busy[at])
	}
}

// search returns the first flow by score whose head may go. It skips up to mostLooked flows with
// heads that are too large.
func (c *Core) search(b *band, ceiling float64) *flow {
	b.rank(c.slab, c.now)
	tooMany := never // this many permits are not free
	c.frontier = append(c.frontier[:0], 0)
	for range mostLooked {
		if len(c.frontier) == 0 {
			break
		}
		at := c.nextOf(b)
		f := b.busy[at]
		w := &c.slab[f.heap.items[0]]
		places := c.wanted(w)
		if places < tooMany {
			if c.fits(b, f, places, ceiling) {
				return f
			}
			tooMany = places
		}
		if tooMany <= 1 || c.now-w.offered > heldBack && c.lacksRoom(places, ceiling) {
			return nil
		}
		for child := 2*at + 1; child <= 2*at+2 && child < len(b.busy); child++ {
			c.frontier = append(c.frontier, int32(child))
		}
	}
	return nil
}

// nextOf removes the next flow from the frontier and returns its position.
func (c *Core) nextOf(b *band) int {
	least := 0
	for i, at := range c.frontier {
		if goesBefore(b.busy[at], b.busy[c.frontier[least]]) {
			least = i
		}
	}
	at, last := c.frontier[least], len(c.frontier)-1
	c.frontier[least] = c.frontier[last]
	c.frontier = c.frontier[:last]
	return int(at)
}

// touch updates the band's sums after a change of the flow's held or waiting permits.
func (c *Core) touch(f *flow) {
	b := f.band
	if waits := f.waitsAnywhere(); waits != f.waits {
		f.waits = waits
		if waits {
			b.weights += f.weight
		} else {
			b.weights -= f.weight
		}
	}
	if part := f.part(0); b.dirty {
		f.parted = 0 // until all are summed
	} else {
		b.entitled += part - f.parted
		f.parted = part
	}
	b.resort(c.slab, f)
}

// part returns this replica's part of the flow's share: proportional to its part of the demand.
// more is additional local demand that does not count as waiting yet.
func (f *flow) part(more float64) float64 {
	demand, target := f.demand()+more, f.target
	if demand <= 0 {
		return 0
	}
	if more > 0 {
		target = min(target+more, demand)
	}
	return target * (float64(f.own+f.waiting) + more) / demand
}

// entitled returns the permits that this replica may hold for a band: the sum of its parts of the
// flows' shares.
func (c *Core) entitled(b *band) float64 {
	if b.dirty {
		b.dirty, b.entitled = false, 0
		for _, f := range b.active {
			f.parted = f.part(0)
			b.entitled += f.parted
		}
	}
	return b.entitled
}
