package flow

import "github.com/grapevine-epp/grapevine/picker/flow/rules"

// Flows that wait are few as a rule, and the next is found by looking at all. Where they
// are many they are a heap by score: what changes the score of one sifts it, what changes
// all of them (other replicas' gauges, new shares) has the heap made anew when it is next
// needed.

const (
	mostScanned = 8  // flows that wait, and no heap
	mostLooked  = 64 // for one whose head fits
)

// many reports whether the flows that wait are worth a heap. Scores of LeastService change
// with time: of as many as shares are computed for at once, each is looked at.
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

// rank makes the flows that wait a heap where they are not.
func (b *band) rank(s []waiter, now int64) {
	// Scores of LeastService depend on time, and on what all others got.
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

// resort puts a flow that waits where it belongs after its score may have changed.
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

// enlist puts a flow among those that wait.
func (b *band) enlist(s []waiter, f *flow) {
	f.at = len(b.busy)
	b.busy = append(b.busy, f)
	b.resort(s, f)
}

// unbusy takes a flow out of those that wait.
func (b *band) unbusy(s []waiter, f *flow) {
	at, last := f.at, len(b.busy)-1
	b.swap(at, last)
	b.busy[last] = nil
	b.busy, f.at = b.busy[:last], -1
	if at < last {
		b.resort(s, b.busy[at])
	}
}

// search returns the first flow in the order of scores whose head may go; of those with a
// larger head than room is left for, so many are passed.
func (c *Core) search(b *band, ceiling float64) *flow {
	b.rank(c.slab, c.now)
	tooMany := never // so many places are not free
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
		if tooMany <= 1 || c.now-w.arrival > heldBack && c.lacksRoom(places, ceiling) {
			return nil
		}
		for child := 2*at + 1; child <= 2*at+2 && child < len(b.busy); child++ {
			c.frontier = append(c.frontier, int32(child))
		}
	}
	return nil
}

// nextOf takes the place of the flow that is next out of the frontier.
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

// touch takes into account that a flow holds or waits for more or less.
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

// part returns how many places of the flow's share are this replica's: as its demand here
// is of its demand everywhere. more are asked for, and not counted as waiting.
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

// entitled returns the places that this replica may hold for a band: its part of each
// flow's share.
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
