package endpoint

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/picker/endpoint/fit"
)

// TransferModel is what is assumed of moving a prompt's KV blocks before any
// transfer was measured.
type TransferModel struct {
	Fixed         float64            // seconds of each hand-over besides the bytes
	BytesPerToken float64            // of KV cache, all layers
	Speed         [NumLevels]float64 // bytes per second between endpoints of a level
}

// DefaultTransfer is that of an 8B model with grouped attention in 16 bits and of
// usual networks.
var DefaultTransfer = TransferModel{
	Fixed: .02, BytesPerToken: 131072, Speed: [NumLevels]float64{100e9, 25e9, 10e9, 1e9, .2e9},
}

// Seconds returns the time that the blocks of so many tokens take.
func (m *TransferModel) Seconds(level Level, tokens int) float64 {
	return m.Fixed + m.BytesPerToken*float64(max(tokens, 0))/m.Speed[level]
}

// Transfers learns how long hand-overs between endpoints take: a fixed part and
// seconds per token for each level of closeness, and for each pair by how much it
// is off its level. Bytes per token and bandwidths are only told apart by the
// model, which counts until there are measurements. The zero value is ready. It
// is safe for concurrent use; reads do not block.
type Transfers struct {
	mu     sync.Mutex
	fits   [NumLevels]fit.Linear
	levels [NumLevels]atomic.Pointer[levelCost]
	pairs  [transferPairs]fit.Mean // natural logarithms of seen over the level's
}

// levelCost is what the transfers of one level were found to take.
type levelCost struct{ fixed, perToken, seen float64 }

const (
	transferPairs = 4096 // two pairs that share a cell share their mean
	transferTrust = 2    // samples that count as much as the model
	pairTrust     = 3    // samples of a pair that count as much as its level
	pairMost      = 3    // the greatest logarithm that is believed
)

// Seconds returns the expected time from the end of a prefill at from to the first
// content of the answer at to, for so many tokens that to lacks, besides to's own
// step. 0 where both are the same.
func (t *Transfers) Seconds(m *TransferModel, from, to *Endpoint, tokens int) float64 {
	if from == to {
		return 0
	}
	return t.LevelSeconds(m, Shared(from, to), tokens) * t.PairFactor(from, to)
}

// LevelSeconds is Seconds for a usual pair of a level.
func (t *Transfers) LevelSeconds(m *TransferModel, level Level, tokens int) float64 {
	seconds := m.Seconds(level, tokens)
	if l := t.levels[level].Load(); l != nil {
		share := l.seen / (l.seen + transferTrust)
		seconds += share * (l.fixed + l.perToken*float64(max(tokens, 0)) - seconds)
	}
	return seconds
}

// PerToken returns the seconds by which each token more makes the transfers of a level
// longer.
func (t *Transfers) PerToken(m *TransferModel, level Level) float64 {
	seconds := m.BytesPerToken / m.Speed[level]
	if l := t.levels[level].Load(); l != nil {
		seconds += l.seen / (l.seen + transferTrust) * (l.perToken - seconds)
	}
	return seconds
}

// PairFactor returns by what factor the transfers of a pair are longer than those of its
// level.
func (t *Transfers) PairFactor(from, to *Endpoint) float64 {
	mean, weight := t.pairs[pairOf(from, to)].Load()
	if weight == 0 {
		return 1
	}
	return math.Exp(mean * weight / (weight + pairTrust))
}

// Learn takes one measured hand-over of so many tokens; trust in (0, 1] is its
// weight.
func (t *Transfers) Learn(from, to *Endpoint, tokens int, seconds, trust float64) {
	if from == to || tokens < 0 || !(seconds >= 0) || math.IsInf(seconds, 0) {
		return
	}
	level := Shared(from, to)
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.LevelSeconds(&DefaultTransfer, level, tokens)
	f := &t.fits[level]
	f.Begin()
	perToken := DefaultTransfer.BytesPerToken / DefaultTransfer.Speed[level]
	f.Observe([3]float64{DefaultTransfer.Fixed, perToken * float64(tokens), 0}, seconds, trust)
	t.levels[level].Store(&levelCost{fixed: f.A[0] * DefaultTransfer.Fixed, perToken: f.A[1] * perToken, seen: f.N})
	if off := math.Log(max(seconds, 1e-6) / was); off == off {
		t.pairs[pairOf(from, to)].Add(min(max(off, -pairMost), pairMost))
	}
}

// Samples returns the samples behind a level, faded.
func (t *Transfers) Samples(level Level) float64 {
	if l := t.levels[level].Load(); l != nil {
		return l.seen
	}
	return 0
}

// pairOf returns the cell of a pair, by its addresses.
func pairOf(from, to *Endpoint) int {
	h := from.place*0x9e3779b97f4a7c15 ^ to.place
	h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
	return int(h>>33) % transferPairs
}

// placeOf names an address by a number.
func placeOf(address string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(address) {
		h = (h ^ uint64(address[i])) * 1099511628211
	}
	return h
}
