package trace

import (
	"math/rand/v2"
	"slices"
	"time"
)

type generator struct {
	Workload
	rng       *rand.Rand
	trace     *Trace
	speed     float64
	made      int                // requests, those left out included
	preambles map[[2]int][]Block // full blocks of a preamble (document 0) or of a preamble with a document (from 1)
}

func (g *generator) block() Block {
	g.trace.Blocks++
	return Block(g.trace.Blocks - 1)
}

func (g *generator) pick(n int) int {
	switch {
	case g.Skew <= 0 || n < 2:
		return g.rng.IntN(max(n, 1))
	case g.Skew > 1:
		return int(rand.NewZipf(g.rng, g.Skew, 1, uint64(n-1)).Uint64())
	}
	return zipf(g.rng, n, g.Skew)
}

// begin returns the tokens and the full blocks with which a session begins.
func (g *generator) begin() (which, tokens int, chain []Block) {
	which = g.pick(g.Preambles)
	tokens = g.Preamble.tokens(rand.New(rand.NewPCG(uint64(which), 1)))
	chain = g.common([2]int{which, 0}, nil, tokens)
	if g.Documents > 0 {
		doc := g.pick(g.Documents)
		tokens += g.Document.tokens(rand.New(rand.NewPCG(uint64(which), uint64(doc)+2)))
		chain = g.common([2]int{which, doc + 1}, chain, tokens)
	}
	return which, tokens, chain
}

// common returns the full blocks of a shared text, which begins with the blocks before.
func (g *generator) common(key [2]int, before []Block, tokens int) []Block {
	chain, ok := g.preambles[key]
	if !ok {
		chain = g.extend(slices.Clone(before), tokens)
		g.preambles[key] = chain
	}
	return chain
}

// extend names the full blocks up to tokens.
func (g *generator) extend(chain []Block, tokens int) []Block {
	for len(chain) < tokens/g.trace.BlockSize {
		chain = append(chain, g.block())
	}
	return chain
}

// session adds the requests of one session, at most most.
func (g *generator) session(most int) {
	t, rng := g.trace, g.rng
	joins := time.Duration(rng.Float64() * rampShare * float64(t.Length))
	tenant, preamble, common := g.begin()
	context, chain := preamble, slices.Clone(common)
	at := time.Duration(rng.Int64N(int64(t.Length)))
	turns := min(g.Turns.tokens(rng), most)
	context += g.First.tokens(rng)
	for turn := range turns {
		answer := g.Answer.tokens(rng)
		if context+answer > g.Limit && turn > 0 {
			if g.Compact.Median == 0 {
				break
			}
			context, chain = preamble+g.Compact.tokens(rng), chain[:min(preamble/t.BlockSize, len(chain))]
		}
		chain = g.extend(chain, context)
		r := Request{At: at % t.Length, Input: context, Output: answer, Session: int32(t.Sessions), Tenant: int32(tenant)}
		g.send(&r, chain, at < t.Length || at%t.Length >= joins)
		context += answer + g.Question.tokens(rng)
		at += g.gap(answer)
	}
	t.Sessions++
}

// gap returns the time between two turns of a session: the answer at an unhurried speed, and the
// user's pause.
func (g *generator) gap(answer int) time.Duration {
	seconds := unhurried(float64(answer)) + g.Gap.draw(g.rng)
	if g.rng.Float64() < g.Pauses {
		seconds += g.Pause.draw(g.rng)
	}
	return time.Duration(seconds / g.speed * float64(time.Second))
}

// send adds a turn: one request, or several at once that go on from the same
// context in their own ways.
func (g *generator) send(r *Request, chain []Block, heard bool) {
	many := 1
	if g.Fan.Median > 0 {
		many = g.Fan.tokens(g.rng)
	}
	for i := range many {
		one := *r
		one.Blocks = slices.Clone(chain)
		if i > 0 {
			one.Input += g.Question.tokens(g.rng)
			one.Blocks = g.extend(one.Blocks, one.Input)
		}
		if one.Input%g.trace.BlockSize > 0 {
			one.Blocks = append(one.Blocks, g.block())
		}
		if g.made++; heard {
			g.trace.Requests = append(g.trace.Requests, one)
		}
	}
}
