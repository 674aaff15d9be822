package cycle

import "time"

// Wait returns the seconds until a request that needs the KV memory of so many
// new tokens, and whose answer is expected to be answer tokens long, would begin
// at v, which is one engine or one rank of it (View.Rank). Of the bounds that are known the greatest counts: the queue in the book,
// requests that others have placed, the limit of sequences, and memory.
func (v *View) Wait(now time.Time, tokens, answer float64) float64 {
	wait, _ := v.Waits(now, tokens, answer)
	return wait
}

// Waits returns Wait and, of its bounds, that of memory (WaitOfMemory).
func (v *View) Waits(now time.Time, tokens, answer float64) (wait, memory float64) {
	wait = v.Cost.Wait(&v.Load, now)
	if !v.Fresh() {
		return wait, 0
	}
	memory = v.WaitOfMemory(tokens, answer)
	return max(wait, v.waitOfQueue(answer, wait), v.waitOfSlots(answer), memory), memory
}

// Fresh reports whether the engine's gauges are there and young enough to say
// anything of a wait.
func (v *View) Fresh() bool { return v.Sampled && v.Age <= gaugesCount }

// gaugesCount is how old gauges may be to bound a wait.
const gaugesCount = 5 * time.Second

// step returns the length of a decode step there.
func (v *View) step() float64 {
	return v.Cost.StepOf(float64(max(v.Load.Requests-v.Load.Waiting, int64(v.Running), 0)), float64(v.Load.Context))
}

// waitOfQueue bounds the wait by the engine's own queue. More waiting requests
// than the book has are the work of others: they count as the book's do. Where
// more wait than can have come since the last steps, with less work than a step
// does, the engine is at its limit of sequences: one ends every answer/running
// steps.
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

// waitOfSlots bounds the wait by the sequences that the engine runs at once, where it has
// shown how many: of as many as it runs one ends every answer/slots steps. Where nobody
// has a free one it says nothing: all wait, and what counts for all is how much is
// computed, not whose queue is shorter by one.
func (v *View) waitOfSlots(answer float64) float64 {
	if beyond := v.Load.Requests + 1 - v.Slots; v.freeElsewhere && v.Slots > 0 && beyond > 0 {
		return float64(beyond) / float64(v.Slots) * answer * v.step()
	}
	return 0
}

// WaitsForSlot reports whether what passes until the first token at v is the wait for the end
// of another request, while another endpoint of its role has a slot.
func (v *View) WaitsForSlot() bool { return v.freeElsewhere && v.allSlotsTaken() }

// allSlotsTaken reports whether what v has in flight is all that it is known to run at once, so
// that the next first token there waits for the end of another request.
func (v *View) allSlotsTaken() bool { return v.Slots > 0 && v.Load.Requests >= v.Slots }

// smallQueue is the number of tokens that any engine prefills in a step or two.
const smallQueue = 4096

// WaitOfMemory returns the seconds until v has KV memory for so many new tokens: what
// is used there becomes free in the time that the running answers take. 0 when its
// memory is not known, or was too long ago.
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

// WaitOfRoom returns the seconds until v has KV memory for a prompt of so many tokens
// behind all that was placed there and has not ended: prompts that are still computed
// elsewhere count, and so do those that v has cached, since a cache that nobody uses
// counts as free until they run. What prompts share is known of those that run: what
// is used against the tokens of their contexts. 0 when v's memory is not known, or was
// too long ago.
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
