package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Spread is a log-normal distribution.
type Spread struct {
	Median, Sigma, Max float64
}

func (s Spread) draw(rng *rand.Rand) float64 {
	v := s.Median * math.Exp(s.Sigma*rng.NormFloat64())
	if s.Max > 0 {
		v = min(v, s.Max)
	}
	return v
}

func (s Spread) tokens(rng *rand.Rand) int { return max(int(s.draw(rng)+.5), 1) }

// Workload is a synthetic load: sessions that begin with a preamble that many
// share, perhaps a document that some share, and go on for some turns, each of
// which holds all that came before.
type Workload struct {
	Name      string
	Preambles int     // different ones
	Skew      float64 // Zipf exponent of their popularity, above 1; else even
	Preamble  Spread  // tokens
	Documents int     // for each preamble; 0: none
	Document  Spread  // tokens
	First     Spread  // tokens of the first question
	Turns     Spread
	Question  Spread  // tokens that a later turn adds: tool results, user text
	Answer    Spread  // tokens
	Gap       Spread  // seconds from an answer to the next turn
	Pauses    float64 // share of turns before which a person thinks
	Pause     Spread  // seconds that this adds
	Limit     int     // tokens of context at which a session ends, or is compacted
	Compact   Spread  // tokens of the summary that takes the place of all but the preamble; zero: sessions end
	// Saturation is the rate that counts as load 1: about the highest that
	// eight engines at their defaults sustain under the policy unified, in
	// requests per second for each of them.
	Saturation float64
}

// Workloads are the built-in ones. The first stands for coding agents; the
// others differ from it on purpose, and serve for tuning.
var Workloads = []Workload{
	{
		Name: "agentic", Preambles: 6, Skew: 1.4, Preamble: Spread{10_000, .4, 24_000},
		First: Spread{3_000, 1, 30_000}, Turns: Spread{28, .8, 150}, Question: Spread{600, 1.3, 12_000},
		Answer: Spread{140, .9, 3_000}, Gap: Spread{3, 1, 60}, Pauses: .07, Pause: Spread{150, 1.2, 3_600},
		Limit: 110_000, Compact: Spread{5_000, .6, 15_000}, Saturation: 1.3,
	},
	{
		Name: "coder", Preambles: 3, Skew: 0, Preamble: Spread{16_000, .2, 24_000},
		First: Spread{1_000, 1, 8_000}, Turns: Spread{45, .6, 200}, Question: Spread{900, 1, 8_000},
		Answer: Spread{220, .7, 2_000}, Gap: Spread{6, 1.2, 120}, Pauses: .05, Pause: Spread{300, .9, 2_400},
		Limit: 128_000, Saturation: .88,
	},
	{
		Name: "chat", Preambles: 12, Skew: 1.2, Preamble: Spread{900, .6, 4_000},
		First: Spread{2_500, 1.4, 60_000}, Turns: Spread{2.5, .9, 40}, Question: Spread{500, 1.3, 20_000},
		Answer: Spread{320, .7, 2_000}, Gap: Spread{35, 1, 600},
		Limit: 128_000, Saturation: 1.68,
	},
	{
		Name: "documents", Preambles: 20, Skew: 1.1, Preamble: Spread{600, .3, 2_000}, Documents: 150,
		Document: Spread{10_000, .9, 80_000}, First: Spread{120, .8, 2_000}, Turns: Spread{1.6, .7, 12},
		Question: Spread{100, .8, 1_000}, Answer: Spread{160, .8, 1_500}, Gap: Spread{25, .9, 300},
		Limit: 128_000, Saturation: 2.5,
	},
	{
		Name: "mixed", Preambles: 4, Skew: 1.3, Preamble: Spread{700, .4, 2_000},
		First: Spread{6_500, 1.1, 90_000}, Turns: Spread{1.4, .8, 20}, Question: Spread{900, 1.4, 40_000},
		Answer: Spread{260, .9, 2_000}, Gap: Spread{40, 1, 600},
		Limit: 128_000, Saturation: .88,
	},
	{
		Name: "swarm", Preambles: 10, Skew: 1.2, Preamble: Spread{7_000, .4, 20_000},
		First: Spread{5_000, .9, 30_000}, Turns: Spread{20, .9, 120}, Question: Spread{900, 1.2, 12_000},
		Answer: Spread{180, .8, 3_000}, Gap: Spread{2.5, 1, 60}, Pauses: .1, Pause: Spread{90, 1.2, 2_400},
		Limit: 80_000, Compact: Spread{8_000, .6, 20_000}, Saturation: 1.25,
	},
	{
		Name: "review", Preambles: 8, Skew: 1.3, Preamble: Spread{4_000, .5, 12_000},
		First: Spread{12_000, .9, 60_000}, Turns: Spread{9, .8, 80}, Question: Spread{1_500, 1.2, 20_000},
		Answer: Spread{350, .8, 3_000}, Gap: Spread{8, 1.1, 120}, Pauses: .12, Pause: Spread{120, 1, 1_800},
		Limit: 110_000, Saturation: .6,
	},
}

// WorkloadNames returns the names of the built-in workloads.
func WorkloadNames() []string {
	names := make([]string, len(Workloads))
	for i := range Workloads {
		names[i] = Workloads[i].Name
	}
	return names
}

// WorkloadByName returns a built-in workload.
func WorkloadByName(name string) (Workload, error) {
	names := WorkloadNames()
	if i := slices.Index(names, name); i >= 0 {
		return Workloads[i], nil
	}
	return Workload{}, fmt.Errorf("replay: workload %q: there are %s", name, strings.Join(names, ", "))
}

// GenerateOptions say how much of a workload is wanted.
type GenerateOptions struct {
	Rate      float64       // requests per second; default 1
	Length    time.Duration // default 1 h
	BlockSize int           // default 512
	Speed     float64       // factor by which the clocks of sessions run faster; default 1
	Seed      uint64
}

// rampShare is the share of a generated trace's length in which the sessions
// that are under way at its beginning join.
const rampShare = .2

// Generate makes a trace. Sessions begin evenly over its length; what would
// come after the end comes at the beginning instead, so that the load is the
// same throughout, but for the first fifth: sessions that are under way join
// there one after another, since nobody's cache holds them yet.
func (w Workload) Generate(o GenerateOptions) *Trace {
	setDefault(&o.Rate, 1)
	setDefault(&o.Length, time.Hour)
	setDefault(&o.BlockSize, DefaultBlockSize)
	setDefault(&o.Speed, 1)
	g := generator{
		Workload: w, speed: o.Speed, rng: rand.New(rand.NewPCG(o.Seed, 0x9e7)), preambles: map[[2]int][]Block{},
		trace: &Trace{Name: w.Name, BlockSize: o.BlockSize, Length: o.Length},
	}
	for want := max(int(o.Rate*o.Length.Seconds()), 1); g.made < want; {
		g.session(want - g.made)
	}
	t := g.trace
	slices.SortStableFunc(t.Requests, byArrival)
	t.nameAnswers()
	return t
}

type generator struct {
	Workload
	rng       *rand.Rand
	trace     *Trace
	speed     float64
	made      int                // requests, those left out included
	preambles map[[2]int][]Block // full blocks of a preamble (document 0) and of it with a document (from 1)
}

func (g *generator) block() Block {
	g.trace.Blocks++
	return Block(g.trace.Blocks - 1)
}

func (g *generator) pick(n int) int {
	if g.Skew <= 1 || n < 2 {
		return g.rng.IntN(max(n, 1))
	}
	return int(rand.NewZipf(g.rng, g.Skew, 1, uint64(n-1)).Uint64())
}

// begin returns the tokens and the full blocks with which a session begins.
func (g *generator) begin() (tokens int, chain []Block) {
	which := g.pick(g.Preambles)
	tokens = g.Preamble.tokens(rand.New(rand.NewPCG(uint64(which), 1)))
	chain = g.common([2]int{which, 0}, nil, tokens)
	if g.Documents > 0 {
		doc := g.pick(g.Documents)
		tokens += g.Document.tokens(rand.New(rand.NewPCG(uint64(which), uint64(doc)+2)))
		chain = g.common([2]int{which, doc + 1}, chain, tokens)
	}
	return tokens, chain
}

// common returns the full blocks of a text that many share, which begins with
// those of before.
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
	preamble, common := g.begin()
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
		blocks := slices.Clone(chain)
		if context%t.BlockSize > 0 {
			blocks = append(blocks, g.block())
		}
		g.made++
		if at < t.Length || at%t.Length >= joins {
			t.Requests = append(t.Requests, Request{
				At: at % t.Length, Input: context, Output: answer, Session: int32(t.Sessions), Blocks: blocks,
			})
		}
		context += answer + g.Question.tokens(rng)
		at += g.gap(answer)
	}
	t.Sessions++
}

// gap returns the time from one turn of a session to the next: an unhurried
// answer, and what comes before the next question.
func (g *generator) gap(answer int) time.Duration {
	seconds := 1 + .045*float64(answer) + g.Gap.draw(g.rng)
	if g.rng.Float64() < g.Pauses {
		seconds += g.Pause.draw(g.rng)
	}
	return time.Duration(seconds / g.speed * float64(time.Second))
}
