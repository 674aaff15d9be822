package cycle

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Fresh reports whether the engine's gauges exist and are recent enough to estimate a wait.
func (v *View) Fresh() bool { return v.Sampled && v.Age <= gaugesCount }

// gaugesCount is the maximum age of gauges for a wait estimate.
const gaugesCount = 5 * time.Second

// step returns the length of a decode step at v.
func (v *View) step() float64 { return stepOf(v.Cost, &v.Load, &v.Reading) }

func stepOf(c *endpoint.Cost, l *endpoint.Load, r *endpoint.Reading) float64 {
	return c.StepOf(float64(max(l.Requests-l.Waiting, int64(r.Running), 0)), float64(l.Context))
}

// WaitsForSlot reports whether the first token at v waits for another request to end, although
// another endpoint of its role has a free slot.
func (v *View) WaitsForSlot() bool { return v.otherFree && v.allSlotsTaken() }

// allSlotsTaken reports whether v has at least its known maximum of concurrent requests in flight.
func (v *View) allSlotsTaken() bool { return v.Slots > 0 && v.Load.Requests >= v.Slots }

// smallQueue is the number of tokens that any engine prefills in a step or two.
const smallQueue = 4096

// WaitOfMemory returns the seconds until v has KV memory for that many new tokens, assuming that
// used memory is freed as the running answers end. It returns 0 if v's memory is unknown or the
// reading is stale.
func (v *View) WaitOfMemory(tokens, answer float64) float64 {
	if !v.Fresh() {
		return 0
	}
	var t Terms
	t.set(v.Cost, &v.Load, &v.Reading)
	return t.waitOfMemory(tokens, answer)
}

// WaitOfRoom returns the seconds until v has KV memory for a prompt of tokens tokens after all
// unfinished requests placed there. Prompts that are still computed at other endpoints count. So do
// prompts cached at v, since an unused cache counts as free until they run. The ratio of used
// memory to the context tokens of running requests gives the share that prompts have in common. It
// returns 0 if v's memory is unknown or the reading is stale.
func (v *View) WaitOfRoom(tokens, answer float64) float64 {
	if !v.Fresh() || v.Capacity <= 0 || v.KVUse <= 0 {
		return 0
	}
	used := v.KVUse * v.Capacity
	own := min(used/float64(max(v.Load.Context, 1)), 1)
	missing := own*(float64(max(v.Load.Tokens, 0))+tokens) - v.Capacity
	if missing <= 0 {
		return 0
	}
	return missing / used * answer * v.step()
}
