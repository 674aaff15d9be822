package health

import (
	"math"
	"sync"
)

// Lengths compares the length of answers with those of other endpoints to similar requests. It is
// safe for concurrent use. Its zero value is ready. Its memory is constant.
//
// Requests are similar if they belong to the same class, and if their prompts begin alike. Where no
// other endpoint has seen prompts with this beginning, the class decides, and several short answers
// to prompts with the same beginning count once: a router may send all requests of an application
// with naturally short answers to one endpoint.
type Lengths struct {
	mu     sync.Mutex
	fine   [lengthClasses]lengthClass // by class and beginning
	coarse [lengthClasses]lengthClass // by class
}

const (
	lengthClasses = 64
	lengthEnds    = 8   // endpoints of a class
	lengthFade    = 16. // answers that an endpoint's mean covers
	lengthKnown   = 6.  // minimum answers of other endpoints
	lengthSigmas  = 2.
	lengthHeads   = 8
)

// lengthLeast is the minimum logarithmic distance from the peers' mean.
var lengthLeast = math.Log(4)

// lengthClass is the record of one class of requests.
type lengthClass struct {
	key   uint64
	ends  [lengthEnds]lengthStat
	heads [lengthHeads]uint64 // beginnings of prompts whose answers were short
	next  int
}

// lengthStat holds the mean logarithm of an endpoint's lengths.
type lengthStat struct {
	endpoint     int // plus 1; 0: unused
	n            float64
	mean, square float64
}

// Short records an answer's tokens and reports whether it is much shorter than those of other
// endpoints to similar requests. class identifies similar requests, head the beginning of the
// prompt.
func (l *Lengths) Short(class, head uint64, endpoint, tokens int) bool {
	x := math.Log1p(float64(max(tokens, 0)))
	l.mu.Lock()
	defer l.mu.Unlock()
	short, known := at(&l.fine, class^(head*0x9e3779b97f4a7c15|1)).compare(endpoint, x)
	all := at(&l.coarse, class)
	shorter, _ := all.compare(endpoint, x)
	if known {
		return short
	}
	return shorter && all.distinct(head)
}

// at returns the record of a class, which replaces another one in its place.
func at(list *[lengthClasses]lengthClass, key uint64) *lengthClass {
	c := &list[(key^key>>32)%lengthClasses]
	if c.key != key {
		*c = lengthClass{key: key}
	}
	return c
}

// compare compares a length with those of other endpoints, and records it. known means that these
// had enough answers.
func (c *lengthClass) compare(endpoint int, x float64) (short, known bool) {
	var own *lengthStat
	n, mean, square := 0., 0., 0.
	for i := range c.ends {
		s := &c.ends[i]
		switch {
		case s.endpoint == endpoint+1:
			own = s
		case s.endpoint != 0:
			w := min(s.n, lengthFade)
			n, mean, square = n+w, mean+w*s.mean, square+w*s.square
		}
	}
	if own == nil {
		own = &c.ends[0]
		for i := range c.ends {
			if c.ends[i].n < own.n {
				own = &c.ends[i]
			}
		}
		*own = lengthStat{endpoint: endpoint + 1}
	}
	own.n++
	rate := 1 / min(own.n, lengthFade)
	own.mean += rate * (x - own.mean)
	own.square += rate * (x*x - own.square)
	if n < lengthKnown {
		return false, false
	}
	mean, square = mean/n, square/n
	margin := max(lengthLeast, lengthSigmas*math.Sqrt(max(square-mean*mean, 0)))
	return x < mean-margin, true
}

// distinct reports whether a beginning is not among the last ones with short answers, and records
// it.
func (c *lengthClass) distinct(head uint64) bool {
	for _, h := range c.heads {
		if h == head {
			return false
		}
	}
	c.heads[c.next%lengthHeads] = head
	c.next++
	return true
}
