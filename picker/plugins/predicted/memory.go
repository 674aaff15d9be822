package predicted

import (
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// memoryCost returns the seconds by which the KV memory that the request would hold at
// v delays those who come there later, all of them together.
//
// Memory serves like a queue of its own: a request takes a share of it for as long
// as it runs, and where it is full, those who come wait for that share × time on
// top of what they waited for before. Those who have less to wait elsewhere go
// there, so of the wait only what is beyond the least wait of all candidates is
// counted. Where memory is not full nobody waits for it: with n requests there it
// is taken to be full with the probability use^n, so that a long prompt counts
// where few others would fill the rest, and not where many short ones leave room.
//
// room is the wait for memory there.
func (d *decision) memoryCost(v *cycle.View, w endpoint.Work, room float64) float64 {
	if !v.Fresh() || v.Capacity <= 0 {
		return 0
	}
	use := min(v.KVUse+float64(w.New)/v.Capacity, 1)
	if use < littleUsed || v.Load.Rate == 0 {
		return 0
	}
	full := power(use, max(v.Running, 1))
	hold := d.hold(v, w)
	wait := max(room-d.least, 0)
	return full * hold * v.Load.Rate * (wait + hold/2)
}

// memoryWait returns the wait for the memory of w at candidate k, which is v.
func (d *decision) memoryWait(k int, v *cycle.View, w endpoint.Work) float64 {
	if float64(w.New) == d.news[k] {
		return d.memories[k]
	}
	return v.WaitOfMemory(float64(w.New), d.answer)
}

// power returns base to the n-th by repeated squaring, for a base of 0 to 1 and an n of at least 1.
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

// hold returns the seconds for which the request would hold the whole memory of v
// if it held all of it: its share of memory times the time that it takes there.
func (d *decision) hold(v *cycle.View, w endpoint.Work) float64 {
	step := v.Cost.StepOf(decoding(&v.Load)+1, float64(v.Load.Context+int64(w.Input)))
	share := min((float64(w.Input)+d.answer)/v.Capacity, 1)
	return share * (v.Cost.Prefill(w) + d.answer*step)
}

// littleUsed is the share of memory below which nobody waits for it.
const littleUsed = .5
