package predicted

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// memoryCost returns the total delay, in seconds, that this request's KV memory at candidate k, which is v, causes for
// later requests.
//
// Memory acts like a second queue: a request occupies a share while it runs, and if memory is full,
// later requests wait share × time in addition. Requests with a shorter wait at another candidate
// are sent there, so only the wait beyond the minimum of all candidates counts.
//
// If memory is not full, no request waits. With n requests running, the probability of a full
// memory is estimated as use^n. So a long prompt counts if few others would fill the rest, and does
// not count if many short ones leave space.
func (d *decision) memoryCost(k int, v *cycle.View, w endpoint.Work) float64 {
	if !v.Fresh() || v.Capacity <= 0 {
		return 0
	}
	use := min(v.KVUse+float64(w.New)/v.Capacity, 1)
	if use < littleUsed || v.Load.Rate == 0 {
		return 0
	}
	full := power(use, max(v.Running, 1))
	hold := d.hold(v, w)
	wait := max(d.WaitOfMemory(k, float64(w.New), d.answer)-d.least, 0)
	return full * hold * v.Load.Rate * (wait + hold/2)
}

// power returns base^n by repeated squaring, for a base in [0, 1] and n ≥ 1.
func power(base float64, n int) float64 {
	product := 1.0
	for ; n > 0 && product > 0; n >>= 1 {
		if n&1 == 1 {
			product *= base
		}
		base *= base
	}
	return product
}

// hold returns the request's share of v's memory times the seconds for which it keeps it.
func (d *decision) hold(v *cycle.View, w endpoint.Work) float64 {
	step := v.Cost.StepOf(decoding(&v.Load)+1, float64(v.Load.Context+int64(w.Input)))
	share := min((float64(w.Input)+d.answer)/v.Capacity, 1)
	return share * (v.Cost.Prefill(w) + d.answer*step)
}

// littleUsed is the memory use below which nothing waits for memory.
const littleUsed = cycle.Half
