package predicted

import (
	"math"
	"sync"
	"time"
)

// coldFleet computes a lower bound of the wait in a hypothetical fleet without caches. In that
// fleet the same engines get the same requests, each at the least loaded engine. While that fleet
// would be late as well, staying with a cache is not the cause of delays.
//
// It keeps one number, the remaining work of that fleet, and underestimates it: work decreases as
// if all engines were busy until none is left. Their queues differ by at most the longest prompt,
// so the shortest one is at least
//
//	(work − (engines − 1) × longest) / speeds
//
// Work is in seconds of the fastest engine. speeds is the sum of all engines' speeds relative to
// that one, which is their number if they are equal.
//
// A replica sees only a part of the requests. It weights each by the ratio of the engines' requests
// over the last minute to its own.
type coldFleet struct {
	mu      sync.Mutex
	work    float64 // seconds of the fastest engine, over all engines
	longest float64 // seconds, of prompts since work was last zero
	own     float64 // own requests, decayed
	at      time.Time
}

// rateWindow is the time constant of endpoint.Load.Rate.
const rateWindow = time.Minute

// add adds a prompt and returns the lower bound of its wait. whole is its time without a cache at
// the fastest engine, in seconds. rate is the number of requests per second at all engines from all
// replicas.
func (c *coldFleet) add(now time.Time, engines int, speeds, whole, rate float64) (wait, seen float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if passed := now.Sub(c.at).Seconds(); passed > 0 {
		c.at = now
		c.own *= math.Exp(-passed / rateWindow.Seconds())
		if c.work -= passed * speeds; c.work <= 0 {
			c.work, c.longest = 0, 0
		}
	}
	c.own++
	wait = max(c.work-float64(engines-1)*c.longest, 0) / speeds
	seen = max(rate*rateWindow.Seconds()/c.own, 1)
	c.work += whole * seen
	c.longest = max(c.longest, whole)
	return wait, seen
}
