package pd

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker/cycle"
)

// room returns the seconds until candidate d has memory for the request.
func (j *prices) room(c *cycle.Cycle, d int32) float64 {
	return c.All(d).Rank().WaitOfRoom(float64(c.Request.InputTokens), c.Answer())
}

// memory returns the cost of the longer memory use at d, in delays of other requests, if d prefills
// for the given seconds. If the request itself has to wait for memory, memory counts as full;
// otherwise the probability is estimated as use^requests.
func (j *prices) memory(c *cycle.Cycle, d int32, prefill, room float64) float64 {
	v := c.All(d).Rank()
	if !v.Fresh() || v.Capacity <= 0 {
		return 0
	}
	use := min(v.KVUse+float64(missing(c, d))/v.Capacity, 1)
	room = max(room, v.WaitOfMemory(float64(missing(c, d)), c.Answer()))
	full := 1.0
	if room == 0 {
		if use < littleUsed {
			return 0
		}
		full = math.Pow(use, float64(max(v.Running, 1)))
	}
	input := float64(c.Request.InputTokens)
	step := v.Cost.StepOf(decoding(v)+1, float64(v.Load.Context)+input)
	hold := min((input+c.Answer())/v.Capacity, 1)*(prefill+c.Answer()*step) + min(v.KVUse, 1)*prefill
	return j.MemoryWeight * full * hold * v.Load.Rate * (room + hold/2)
}

// littleUsed is the memory use below which nothing waits for memory.
const littleUsed = .5
