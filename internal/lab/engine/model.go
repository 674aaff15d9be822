package engine

import (
	"math"
	"time"
)

// Model gives the duration of a step. In its plain form it is a sum:
//
//	A + B·prefill + E·Σ(prefill·context) + C·sequences + D·decode context
//
// where prefill is the number of prompt tokens computed in the step, context the mean number of
// tokens before these, sequences the number of scheduled requests, and decode context the sum of
// the contexts of decoding requests.
//
// With A0 set, weights are read once for both kinds of work, as in engines:
//
//	max(A + W·(1 − (1 − Share)^tokens) + C·sequences,  A0 + B·tokens when any are prefilled)
//	  + E·Σ(prefill·context) + D·decode context
//
// where tokens is the number of prefilled and decoded tokens. W is for mixtures of experts: the
// more tokens, the more experts are read, up to all. With Draft set, decode-only steps verify Draft
// more tokens for each sequence and yield Yield tokens; their time is divided by Yield.
type Model struct {
	A float64 // ms per step
	B float64 // µs per prefill token
	E float64 // ns per (prefill token, context token) pair
	C float64 // µs per scheduled sequence
	D float64 // ns per context token of a decoding sequence

	A0    float64 // ms per step that prefills; 0: the plain form
	W     float64 // ms to read all experts
	Share float64 // of the experts that one token uses
	Draft int     // drafted tokens for each sequence
	Yield float64 // mean number of tokens per verified draft, its own included
}

// Roofline estimates: 50% of peak in prefill, 70% of memory bandwidth in
// decode.
var (
	Model70B = Model{A: 18, B: 71, E: 1.66, C: 50, D: 35} // 70B, four H100
	Model8B  = Model{A: 9, B: 32, C: 50, D: 56}           // 8B, one H100; E is neglected
)

// KV-cache sizes that belong to the roofline models, in tokens.
const (
	KVTokens70B = 450_000
	KVTokens8B  = 400_000
)

// Machine is a model on a kind of GPU. It has step times from published kernel tables (vLLM 0.24 on
// H100), the cache capacity left by the weights, and the speed of loading blocks from host memory
// over PCIe.
type Machine struct {
	Name     string
	About    string
	Model    Model
	KVTokens int // in GPU memory, at a utilisation of 0.92 with a BF16 cache
	Load     Load
	KVBytes  float64 // of KV cache per token, all layers
}

// Load is the time to bring blocks from host memory back to the GPU.
type Load struct {
	Base  float64 // ms for each request that loads
	Token float64 // µs for each token
}

// Machines are the presets.
var Machines = []Machine{
	{"70b", "Llama 70B bf16, four H100", Model{A: 15, B: 68, E: 1.37, C: 45, D: 27, A0: 7.8}, 465_000, Load{2, 1.6}, 327_680},
	{"8b", "Llama 8B bf16, one H100", Model{A: 6.3, B: 16.6, E: 1.2, C: 9, D: 42, A0: 3.1}, 450_000, Load{2, 2.6}, 131_072},
	{"235b", "Qwen3 235B-A22B fp8 (mixture of experts), eight H100", Model{A: 16.5, B: 21, E: .86, C: 55, D: 17, A0: 36, W: 12.9, Share: 8. / 128}, 850_000, Load{2, .9}, 192_512},
	{"gpt-oss", "gpt-oss 120B mxfp4 (mixture of experts), two H100", Model{A: 3.3, B: 10, E: .42, C: 20, D: 6, A0: 14, W: 9.4, Share: 4. / 128}, 1_030_000, Load{2, 1}, 36_864},
	{"70b-spec", "Llama 70B bf16, four H100, speculative decoding", Model{A: 15, B: 68, E: 1.37, C: 45, D: 27, A0: 7.8, Draft: 2, Yield: 1.9}, 440_000, Load{2, 1.6}, 327_680},
	{"roofline-70b", "70B on four H100, roofline estimate with one sum of all terms", Model70B, KVTokens70B, Load{2, 1.6}, 327_680},
	{"roofline-8b", "8B on one H100, roofline estimate with one sum of all terms", Model8B, KVTokens8B, Load{2, 2.6}, 131_072},
}

// MachineByName returns a preset.
func MachineByName(name string) (Machine, bool) {
	for _, m := range Machines {
		if m.Name == name {
			return m, true
		}
	}
	return Machine{}, false
}

// SlowedBy returns the model of an engine that takes by times as long.
func (m Model) SlowedBy(by float64) Model {
	m.A, m.B, m.E, m.C, m.D, m.A0, m.W = m.A*by, m.B*by, m.E*by, m.C*by, m.D*by, m.A0*by, m.W*by
	return m
}

// cost is a Model in whole picoseconds: durations are exact integers, equal
// on every machine, and the sum of steps does not depend on how they are
// grouped.
type cost struct {
	step, token, halfPair, seq, context int64
	prefill, experts                    int64
	unused                              float64 // share of the experts that one token leaves out
	draft                               int64
	yield                               float64
}

func (m Model) cost() cost {
	return cost{
		step:     int64(math.Round(m.A * 1e9)),
		token:    int64(math.Round(m.B * 1e6)),
		halfPair: int64(math.Round(m.E * 1e3 / 2)),
		seq:      int64(math.Round(m.C * 1e6)),
		context:  int64(math.Round(m.D * 1e3)),
		prefill:  int64(math.Round(m.A0 * 1e9)),
		experts:  int64(math.Round(m.W * 1e9)),
		unused:   1 - m.Share,
		draft:    int64(m.Draft),
		yield:    max(m.Yield, 1),
	}
}

// load is the work of one step.
type load struct {
	prefill  int64 // prompt tokens
	halfPair int64 // 2·Σ prefill·(context before the chunk + half the chunk)
	seqs     int64
	decoding int64
	context  int64 // Σ context of decoding sequences

	loadBase, loadTokens int64 // ps to bring blocks from host memory
}

// addPrefill adds a chunk of n prompt tokens behind before computed ones. The
// pair count is the same however a prompt is cut into chunks.
func (l *load) addPrefill(n, before int) {
	l.seqs++
	l.prefill += int64(n)
	l.halfPair += int64(n) * int64(2*before+n)
}

func (l *load) addDecode(context int) {
	l.seqs++
	l.decoding++
	l.context += int64(context)
}

// addLoad adds the loading of tokens from host memory.
func (l *load) addLoad(by *Load, tokens int) {
	if tokens > 0 {
		l.loadBase += int64(by.Base * 1e9)
		l.loadTokens += int64(by.Token * 1e6 * float64(tokens))
	}
}

func (c *cost) duration(l *load) time.Duration {
	if c.prefill > 0 {
		return c.shared(l)
	}
	ps := c.step + c.token*l.prefill + c.halfPair*l.halfPair + c.seq*l.seqs + c.context*l.context
	return time.Duration((ps + c.loading(l)) / 1000)
}

// shared is the duration of a step that reads the weights once.
func (c *cost) shared(l *load) time.Duration {
	tokens := l.prefill + l.decoding
	drafts := l.prefill == 0 && c.draft > 0
	if drafts {
		tokens += c.draft * l.decoding
	}
	dense := c.step + c.seq*l.seqs
	if c.experts > 0 {
		dense += int64(float64(c.experts) * (1 - math.Pow(c.unused, float64(tokens))))
	}
	if l.prefill > 0 || drafts {
		dense = max(dense, c.prefill+c.token*tokens)
	}
	ps := dense + c.halfPair*l.halfPair + c.context*l.context + c.loading(l)
	if drafts {
		ps = int64(float64(ps+c.draft*c.step/drafterShare) / c.yield)
	}
	return time.Duration(ps / 1000)
}

// drafterShare is how much quicker a drafter's step is than one of the model.
const drafterShare = 30

func (c *cost) loading(l *load) int64 { return l.loadBase + l.loadTokens }

// Prefill returns the time that a model spends on computing tokens prompt
// tokens behind cached ones, without the per-step and per-sequence parts.
func (m Model) Prefill(tokens, cached int) time.Duration {
	l := load{}
	l.addPrefill(tokens, cached)
	c := m.cost()
	return time.Duration((c.token*l.prefill + c.halfPair*l.halfPair) / 1000)
}
