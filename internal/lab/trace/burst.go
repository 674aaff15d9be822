package trace

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Flash is a temporary crowd of requests about one new long text.
type Flash struct {
	Factor float64       // of the mean rate, added to it
	Tokens int           // of the text that all begin with
	Length time.Duration // of the crowd
}

// flashAt is where in a trace a crowd comes, as a share of its length.
const flashAt = .55

// crowd adds the requests of the flash crowd.
func (g *generator) crowd(rate float64) {
	f, t := &g.Flash, g.trace
	if f.Factor <= 0 {
		return
	}
	from := time.Duration(flashAt * float64(t.Length))
	long := min(f.Length, t.Length/10)
	chain := g.extend(nil, f.Tokens)
	for range int(rate * f.Factor * long.Seconds()) {
		r := Request{
			At: from + time.Duration(g.rng.Int64N(int64(long))), Input: f.Tokens + g.First.tokens(g.rng), Output: g.Answer.tokens(g.rng),
			Session: int32(t.Sessions), Tenant: -1,
		}
		g.send(&r, g.extend(slices.Clone(chain), r.Input), true)
		t.Sessions++
	}
}

// burst moves the starts of sessions and shifts all of their turns. The gaps between starts are
// then gamma distributed with the workload's coefficient of variation.
func (g *generator) burst() {
	t := g.trace
	if g.Burst <= 0 || t.Sessions < 2 {
		return
	}
	start := make([]time.Duration, t.Sessions)
	for i := range start {
		start[i] = t.Length
	}
	for i := range t.Requests {
		s := t.Requests[i].Session
		start[s] = min(start[s], t.Requests[i].At)
	}
	order := make([]int, t.Sessions)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(min(max(start[a]-start[b], -1), 1)) })
	shape := 1 / (g.Burst * g.Burst)
	at, moments := 0.0, make([]float64, t.Sessions)
	for i := range moments {
		at += gamma(g.rng, shape)
		moments[i] = at
	}
	moved := make([]time.Duration, t.Sessions)
	for i, s := range order {
		moved[s] = time.Duration(moments[i]/at*float64(t.Length-1)) - start[s]
	}
	for i := range t.Requests {
		r := &t.Requests[i]
		r.At = (r.At + moved[r.Session] + t.Length) % t.Length
	}
}

// gamma draws from a gamma distribution of mean shape (Marsaglia and Tsang,
// 2000).
func gamma(rng *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(rng, shape+1) * math.Pow(1-rng.Float64(), 1/shape)
	}
	d := shape - 1./3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-rng.Float64()) < .5*x*x+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// zipf draws from 0 to n-1 by weights (k+1)^-s.
func zipf(rng *rand.Rand, n int, s float64) int {
	sum := 0.0
	for k := range n {
		sum += math.Pow(float64(k+1), -s)
	}
	at := rng.Float64() * sum
	for k := range n {
		if at -= math.Pow(float64(k+1), -s); at < 0 {
			return k
		}
	}
	return n - 1
}
