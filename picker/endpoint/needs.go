package endpoint

import (
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint/fit"
)

// Need is a resource that an engine may have to load before it can start a request, in addition to
// KV memory.
type Need uint8

// Needs. Package cycle has a table with one entry for each.
const (
	NeedAdapter Need = iota // the request's LoRA adapter
	NumNeeds
)

// Needs is a set of resources.
type Needs uint8

// With returns s and n.
func (s Needs) With(n Need) Needs { return s | 1<<n }

// Has reports whether s contains n.
func (s Needs) Has(n Need) bool { return s>>n&1 == 1 }

// NeedTimes learns how long engines take to load a resource: the mean excess of first tokens over
// their prediction where it was missing, compared with requests for which nothing was. The zero
// value is ready. It is safe for concurrent use.
type NeedTimes struct {
	present fit.Mean
	missing [NumNeeds]fit.Mean
}

const (
	needSeen = 3  // samples before a load has a price
	needMost = 60 // largest excess in seconds
)

// Seconds returns the learned time to load n, 0 if it is unknown.
func (t *NeedTimes) Seconds(n Need) float64 {
	with, seen := t.missing[n].Load()
	if seen < needSeen {
		return 0
	}
	without, _ := t.present.Load()
	return max(with-max(without, 0), 0)
}

// Observe records by how many seconds a first token came after its prediction, which did not include
// loads, for a request that needs resources. Requests that lacked several show none of the times.
func (t *NeedTimes) Observe(missing Needs, excess float64) {
	excess = min(max(excess, -needMost), needMost)
	if missing == 0 {
		t.present.Add(excess)
	}
	for n := range NumNeeds {
		if missing == Needs(0).With(n) {
			t.missing[n].Add(excess)
		}
	}
}

// adapterCell tracks which adapters an engine has loaded: the ones used most recently. Engines
// report only adapters of requests that run or wait.
type adapterCell struct {
	mu   sync.Mutex
	used []usedAdapter
}

type usedAdapter struct {
	key uint64 // ModelKey of its name
	at  int64  // when it was last used, in Unix nanoseconds
}

// mostAdapters bounds the tracked adapters of an engine.
const mostAdapters = 64

func (c *adapterCell) use(key uint64, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest := 0
	for i := range c.used {
		if u := &c.used[i]; u.key == key {
			u.at = max(u.at, at)
			return
		}
		if c.used[i].at < c.used[oldest].at {
			oldest = i
		}
	}
	if len(c.used) < mostAdapters {
		c.used = append(c.used, usedAdapter{key, at})
		return
	}
	c.used[oldest] = usedAdapter{key, at}
}

// holds reports whether the adapter is among the most recently used ones; slots of 0 means that
// their number is unknown.
func (c *adapterCell) holds(key uint64, slots int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.used {
		if c.used[i].key != key {
			continue
		}
		later := 0
		for k := range c.used {
			if c.used[k].at > c.used[i].at {
				later++
			}
		}
		return slots <= 0 || later < slots
	}
	return false
}

// UseAdapter records that a request with an adapter was sent to the endpoint. key is the ModelKey of
// its name.
func (c *life) UseAdapter(key uint64, now time.Time) { c.adapters.use(key, now.UnixNano()) }

// HoldsAdapter reports whether the engine has loaded an adapter, as far as its reports and the
// requests of this replica show. slots is the number of adapters that it holds, 0 if unknown.
func (c *life) HoldsAdapter(key uint64, slots int) bool { return c.adapters.holds(key, slots) }
