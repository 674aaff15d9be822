package health

import (
	"math"
	"sync"
)

// Lengths finds endpoints whose answers are much shorter than their peers' answers to similar
// requests. It is safe for concurrent use. Its zero value is ready. Its memory is constant.
//
// Requests are similar if they have the same class and the same beginning of the prompt. If no other
// endpoint has seen this beginning, requests of the same class are compared. Short answers to one
// beginning then count once, because all requests of an application with short answers may go to
// one endpoint.
type Lengths struct {
	mu     sync.Mutex
	fine   [lengthClasses]lengthClass // by class and beginning
	coarse [lengthClasses]lengthClass // by class
}

const (
	lengthClasses = 256
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

// Short records the number of tokens of an answer, and reports whether the answer is much shorter
// than its peers' answers to similar requests. class and head are hashes: of the kind of request and
// of the beginning of the prompt.
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

// at returns the record of a class. A new record replaces the one with the same index.
func at(list *[lengthClasses]lengthClass, key uint64) *lengthClass {
	c := &list[(key^key>>32)%lengthClasses]
	if c.key != key {
		*c = lengthClass{key: key}
	}
	return c
}

// compare records a length and compares it with the lengths at other endpoints. known is false if
// the other endpoints have too few answers.
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

// distinct records a beginning with a short answer. It reports whether the beginning is new.
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
