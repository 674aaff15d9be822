package engine

import (
	"math"
	"time"
)

// Model gives the duration of a step:
//
//	A + B·prefill + E·Σ(prefill·context) + C·sequences + D·decode context
//
// where prefill counts prompt tokens computed in the step, context is the
// mean number of tokens before them, sequences counts scheduled requests and
// decode context is the sum of the contexts of those that decode.
type Model struct {
	A float64 // ms per step
	B float64 // µs per prefill token
	E float64 // ns per (prefill token, context token) pair
	C float64 // µs per scheduled sequence
	D float64 // ns per context token of a decoding sequence
}

// Roofline estimates: 50% of peak in prefill, 70% of memory bandwidth in
// decode. KVTokens70B and KVTokens8B are the tokens that fit beside the
// weights.
var (
	Model70B = Model{A: 18, B: 71, E: 1.66, C: 50, D: 35} // 70B, four H100
	Model8B  = Model{A: 9, B: 32, C: 50, D: 56}           // 8B, one H100; E is neglected
)

// KV-cache sizes that belong to the presets, in tokens.
const (
	KVTokens70B = 450_000
	KVTokens8B  = 400_000
)

// Preset returns the model and the KV-cache tokens of a preset: "70b" or "8b".
func Preset(name string) (m Model, kvTokens int, ok bool) {
	switch name {
	case "70b":
		return Model70B, KVTokens70B, true
	case "8b":
		return Model8B, KVTokens8B, true
	default:
		return Model{}, 0, false
	}
}

// cost is a Model in whole picoseconds: durations are exact integers, equal
// on every machine, and the sum of steps does not depend on how they are
// grouped.
type cost struct{ step, token, halfPair, seq, context int64 }

func (m Model) cost() cost {
	return cost{
		step:     int64(math.Round(m.A * 1e9)),
		token:    int64(math.Round(m.B * 1e6)),
		halfPair: int64(math.Round(m.E * 1e3 / 2)),
		seq:      int64(math.Round(m.C * 1e6)),
		context:  int64(math.Round(m.D * 1e3)),
	}
}

// load is what one step computes.
type load struct {
	prefill  int64 // prompt tokens
	halfPair int64 // 2·Σ prefill·(context before the chunk + half the chunk)
	seqs     int64
	decoding int64
	context  int64 // Σ context of decoding sequences
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

func (c cost) duration(l *load) time.Duration {
	ps := c.step + c.token*l.prefill + c.halfPair*l.halfPair + c.seq*l.seqs + c.context*l.context
	return time.Duration(ps / 1000)
}

// Prefill returns the time that a model spends on computing tokens prompt
// tokens behind cached ones, without the per-step and per-sequence parts.
func (m Model) Prefill(tokens, cached int) time.Duration {
	l := load{}
	l.addPrefill(tokens, cached)
	c := m.cost()
	return time.Duration((c.token*l.prefill + c.halfPair*l.halfPair) / 1000)
}
