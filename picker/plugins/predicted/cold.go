package predicted

import (
	"math"
	"sync"
	"time"
)

// coldFleet knows how long requests would wait at least if the same requests went
// to the same engines, each to the one with the least to do, and nothing were ever
// found in a cache. While that fleet would be late itself, staying with a cache is
// not what makes requests late.
//
// It keeps one number, the work that such a fleet had left, and errs on the side
// of less: work goes down as if all engines were busy until none is left. Their
// queues differ by no more than the longest prompt, so the shortest is at least
//
//	(work − (engines − 1) × longest) / speeds
//
// Work is in seconds of the quickest engine, and speeds is the sum of all engines'
// against that one: the number of them where they are equal.
//
// A replica sees a part of the requests. It counts each as many times as the
// engines had requests, over the last minute, for one of its own.
type coldFleet struct {
	mu      sync.Mutex
	work    float64 // seconds of the quickest engine, over all engines
	longest float64 // seconds, of the prompts since there was no work left
	own     float64 // requests counted, faded
	at      time.Time
}

// rateWindow is the time constant of endpoint.Load.Rate.
const rateWindow = time.Minute

// add counts a prompt that takes so many seconds without a cache at the quickest
// engine, and returns how long it would have waited at least. rate is the rate of requests at all engines
// from all replicas, per second.
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
