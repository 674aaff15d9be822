package cycle

import "time"

// Wait returns the seconds until v, an engine or one of its ranks (View.Rank), can start a request.
// The request needs KV memory for tokens new tokens and has an expected answer of answer tokens.
// The result is the largest of the known bounds: the tracked queue, requests of other clients, the
// sequence limit, and memory.
func (v *View) Wait(now time.Time, tokens, answer float64) float64 {
	wait, _ := v.Waits(now, tokens, answer)
	return wait
}

// Waits returns Wait and its memory bound (WaitOfMemory).
func (v *View) Waits(now time.Time, tokens, answer float64) (wait, memory float64) {
	wait = v.Cost.Wait(&v.Load, now)
	if !v.Fresh() {
		return wait, 0
	}
	memory = v.WaitOfMemory(tokens, answer)
	return max(wait, v.waitOfQueue(answer, wait), v.waitOfSlots(answer), memory), memory
}

// Fresh reports whether the engine's gauges exist and are recent enough to estimate a wait.
func (v *View) Fresh() bool { return v.Sampled && v.Age <= gaugesCount }

// gaugesCount is the maximum age of gauges for a wait estimate.
const gaugesCount = 5 * time.Second

// step returns the length of a decode step at v.
func (v *View) step() float64 {
	return v.Cost.StepOf(float64(max(v.Load.Requests-v.Load.Waiting, int64(v.Running), 0)), float64(v.Load.Context))
}

// waitOfQueue bounds the wait by the engine's own queue. If more requests wait there than the load
// tracker has, the excess belongs to other clients and counts the same.
//
// If more requests wait than can have arrived since the last steps, with less work than one step
// does, the engine is at its sequence limit. Then one request ends every answer/running steps.
func (v *View) waitOfQueue(answer, wait float64) float64 {
	if v.Waiting == 0 {
		return 0
	}
	step, known := v.step(), max(v.Load.Waiting, 0)
	if known == 0 {
		return step
	}
	if others := float64(int64(v.Waiting) - known); others > 0 {
		wait *= 1 + others/float64(known)
	}
	if v.Running > 0 && v.Load.Prefill < smallQueue && float64(v.Waiting) > 4+2*v.Load.Rate*step {
		wait = max(wait, float64(v.Waiting+1)/float64(v.Running)*answer*step)
	}
	return wait
}

// waitOfSlots bounds the wait by the engine's sequence limit, if known: with all slots in use, one
// request ends every answer/slots steps. If no candidate has a free slot it returns 0: every
// request waits then, and total work matters more than a queue shorter by one.
func (v *View) waitOfSlots(answer float64) float64 {
	if beyond := v.Load.Requests + 1 - v.Slots; v.freeElsewhere && v.Slots > 0 && beyond > 0 {
		return float64(beyond) / float64(v.Slots) * answer * v.step()
	}
	return 0
}

// WaitsForSlot reports whether the first token at v waits for another request to end, although
// another endpoint of its role has a free slot.
func (v *View) WaitsForSlot() bool { return v.freeElsewhere && v.allSlotsTaken() }

// allSlotsTaken reports whether v has at least its known maximum of concurrent requests in flight.
func (v *View) allSlotsTaken() bool { return v.Slots > 0 && v.Load.Requests >= v.Slots }

// smallQueue is the number of tokens that any engine prefills in a step or two.
const smallQueue = 4096

// WaitOfMemory returns the seconds until v has KV memory for that many new tokens, assuming that
// used memory is freed as the running answers end. It returns 0 if v's memory is unknown or the
// reading is stale.
func (v *View) WaitOfMemory(tokens, answer float64) float64 {
	if !v.Fresh() || v.Capacity <= 0 || v.KVUse <= 0 {
		return 0
	}
	used := v.KVUse * v.Capacity
	missing := tokens + float64(max(v.Load.Prefill, 0)) - (v.Capacity - used)
	if missing <= 0 {
		return 0
	}
	return missing / used * answer * v.step()
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
