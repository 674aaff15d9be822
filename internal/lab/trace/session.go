package trace

import (
	"math/rand/v2"
	"slices"
	"time"
)

// sharedFrom is the number of different continuations from which on a block
// counts as a shared preamble rather than as a part of one session.
const sharedFrom = 16

// tick returns the median distance between different arrivals if it is a second or more and most
// requests share their arrival time with others, which shows that arrivals were rounded. Otherwise
// it returns 0.
func tick(rs []Request) time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(rs); i++ {
		if d := rs[i].At - rs[i-1].At; d > 0 {
			gaps = append(gaps, d)
		}
	}
	if len(gaps) == 0 || 2*len(gaps) > len(rs) {
		return 0
	}
	slices.Sort(gaps)
	if g := gaps[len(gaps)/2]; g >= time.Second {
		return g
	}
	return 0
}

// spreadOver spreads arrivals that were rounded to a tick evenly at random over
// it. Its random numbers depend on the trace alone, so that a seed changes
// other things only.
func (t *Trace) spreadOver(tick time.Duration) {
	if tick > 0 {
		rng := rand.New(rand.NewPCG(0x5eed, uint64(len(t.Requests))))
		for i := range t.Requests {
			t.Requests[i].At += time.Duration(rng.Int64N(int64(tick)))
		}
		slices.SortStableFunc(t.Requests, byArrival)
	}
	t.Length = t.Requests[len(t.Requests)-1].At + 1
}

func byArrival(a, b Request) int { return int(min(max(a.At-b.At, -1), 1)) }

// deriveSessions assigns sessions to requests that have none. A request continues a session if its
// prompt begins with the full blocks of the session's last prompt. Shared preambles do not make a
// session.
func (t *Trace) deriveSessions() {
	shared := t.preambles()
	last := make([]int32, t.Blocks) // session + 1 whose last prompt ends here
	for i := range t.Requests {
		r := &t.Requests[i]
		full := r.Full(t.BlockSize)
		if r.Session < 0 {
			r.Session = longest(r.Blocks[:full], last, shared) - 1
		}
		if r.Session < 0 {
			r.Session = int32(t.Sessions)
			t.Sessions++
		}
		if full > 0 && !shared[r.Blocks[full-1]] {
			last[r.Blocks[full-1]] = r.Session + 1
		}
	}
}

// longest returns the entry of last for the deepest private block that has one.
func longest(chain []Block, last []int32, shared []bool) int32 {
	for k := len(chain) - 1; k >= 0 && !shared[chain[k]]; k-- {
		if s := last[chain[k]]; s > 0 {
			return s
		}
	}
	return 0
}

// preambles returns, by block, whether it has many different continuations.
func (t *Trace) preambles() []bool {
	children := make([]int32, t.Blocks)
	seen := make([]bool, t.Blocks)
	for i := range t.Requests {
		chain := t.Requests[i].Blocks
		for k, b := range chain {
			if !seen[b] && k > 0 {
				children[chain[k-1]]++
			}
			seen[b] = true
		}
	}
	shared := make([]bool, t.Blocks)
	for i := range t.Requests {
		chain := t.Requests[i].Blocks
		for k := len(chain) - 1; k >= 0; k-- {
			if children[chain[k]] >= sharedFrom || (k+1 < len(chain) && shared[chain[k+1]]) {
				shared[chain[k]] = true
			}
		}
	}
	return shared
}

// nameAnswers fills Answer from the next turn of each session.
func (t *Trace) nameAnswers() {
	next := make([]int32, t.Sessions) // index + 1 of the session's next request
	for i := len(t.Requests) - 1; i >= 0; i-- {
		r := &t.Requests[i]
		if n := next[r.Session]; n > 0 {
			r.Answer = answer(r, &t.Requests[n-1], t.BlockSize)
		}
		next[r.Session] = int32(i) + 1
	}
}

// answer returns the blocks of follow behind the full ones of r that r's own
// answer fills, if follow begins with r's prompt.
func answer(r, follow *Request, blockSize int) []Block {
	from, to := r.Full(blockSize), min((r.Input+r.Output)/blockSize, follow.Full(blockSize))
	if to <= from || !slices.Equal(r.Blocks[:from], follow.Blocks[:from]) {
		return nil
	}
	return follow.Blocks[from:to:to]
}

// Capped returns the trace in which each session keeps its first turns
// requests.
func (t *Trace) Capped(turns int) *Trace {
	out := *t
	out.Requests = nil
	seen := make([]int, t.Sessions)
	for i := range t.Requests { // in order of arrival, which is the order of turns
		s := t.Requests[i].Session
		if seen[s]++; seen[s] <= turns {
			out.Requests = append(out.Requests, t.Requests[i])
		}
	}
	return &out
}

// assumedAnswer is the length of answers, in tokens, in a recording that saw
// none.
const assumedAnswer = 256

// drawAnswers gives each answer without a recorded length a random recorded one, limited by the
// space in the session's next prompt. Its random numbers depend only on the trace.
func (t *Trace) drawAnswers() {
	var seen []int
	for i := range t.Requests {
		if n := t.Requests[i].Output; n > 0 {
			seen = append(seen, n)
		}
	}
	if len(seen) == len(t.Requests) {
		return
	}
	rng := rand.New(rand.NewPCG(0xa115e4, uint64(len(t.Requests))))
	next := make([]int32, t.Sessions) // index + 1 of the session's next request
	for i := len(t.Requests) - 1; i >= 0; i-- {
		r := &t.Requests[i]
		if r.Output == 0 {
			r.Output = assumedAnswer
			if len(seen) > 0 {
				r.Output = seen[rng.IntN(len(seen))]
			}
			if n := next[r.Session]; n > 0 {
				r.Output = min(r.Output, room(r, &t.Requests[n-1], t.BlockSize))
			}
		}
		next[r.Session] = int32(i) + 1
	}
}

// room returns the tokens between the end of r's prompt and the end of follow's prompt, if follow
// continues r.
func room(r, follow *Request, blockSize int) int {
	if full := r.Full(blockSize); follow.Input > r.Input && full <= len(follow.Blocks) && slices.Equal(r.Blocks[:full], follow.Blocks[:full]) {
		return follow.Input - r.Input
	}
	return maxTokens
}
