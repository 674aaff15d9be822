package endpoint

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/picker/endpoint/fit"
)

// TransferModel is the assumed cost of a KV transfer before measurements.
type TransferModel struct {
	Fixed         float64            // seconds per transfer in addition to the bytes
	BytesPerToken float64            // of KV cache, all layers
	Speed         [NumLevels]float64 // bytes per second between endpoints of a level
}

// DefaultTransfer assumes an 8B model with grouped-query attention in 16 bits and typical networks.
var DefaultTransfer = TransferModel{
	Fixed: .02, BytesPerToken: 131072, Speed: [NumLevels]float64{100e9, 25e9, 10e9, 1e9, .2e9},
}

// Seconds returns the transfer time of the blocks of a number of tokens.
func (m *TransferModel) Seconds(level Level, tokens int) float64 {
	return m.Fixed + m.BytesPerToken*float64(max(tokens, 0))/m.Speed[level]
}

// Transfers learns the time of KV transfers between endpoints: a fixed part and seconds per token
// for each level of closeness, and a factor for each pair. Only the model distinguishes bytes per
// token from bandwidth; it is used until there are measurements. The zero value is ready. It is
// safe for concurrent use; reads do not block.
type Transfers struct {
	mu     sync.Mutex
	fits   [NumLevels]fit.Linear
	levels [NumLevels]atomic.Pointer[levelCost]
	pairs  [transferPairs]fit.Mean // natural logarithms of observed over the level's time
}

// levelCost is the measured cost of one level.
type levelCost struct{ fixed, perToken, seen float64 }

const (
	transferPairs = 4096 // pairs with the same cell share its mean
	transferTrust = 2    // samples that count as much as the model
	pairTrust     = 3    // samples of a pair that count as much as its level
	pairMost      = 3    // maximum accepted logarithm
)

// Seconds returns the expected time from the end of a prefill at from to the first content of the
// answer at to, if to lacks the given tokens. It excludes to's own step. It returns 0 if both are
// the same.
func (t *Transfers) Seconds(m *TransferModel, from, to *Endpoint, tokens int) float64 {
	if from == to {
		return 0
	}
	return t.LevelSeconds(m, Shared(from, to), tokens) * t.PairFactor(from, to)
}

// LevelSeconds is Seconds for a typical pair of a level.
func (t *Transfers) LevelSeconds(m *TransferModel, level Level, tokens int) float64 {
	seconds := m.Seconds(level, tokens)
	if l := t.levels[level].Load(); l != nil {
		share := l.seen / (l.seen + transferTrust)
		seconds += share * (l.fixed + l.perToken*float64(max(tokens, 0)) - seconds)
	}
	return seconds
}

// PerToken returns the additional transfer time per token at a level, in seconds.
func (t *Transfers) PerToken(m *TransferModel, level Level) float64 {
	seconds := m.BytesPerToken / m.Speed[level]
	if l := t.levels[level].Load(); l != nil {
		seconds += l.seen / (l.seen + transferTrust) * (l.perToken - seconds)
	}
	return seconds
}

// PairFactor returns the ratio of a pair's transfer time to its level's.
func (t *Transfers) PairFactor(from, to *Endpoint) float64 {
	mean, weight := t.pairs[pairOf(from, to)].Load()
	if weight == 0 {
		return 1
	}
	return math.Exp(mean * weight / (weight + pairTrust))
}

// Learn adds one measured transfer; trust in (0, 1] is its weight.
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

// Samples returns the decayed number of samples of a level.
func (t *Transfers) Samples(level Level) float64 {
	if l := t.levels[level].Load(); l != nil {
		return l.seen
	}
	return 0
}

// pairOf returns the cell of a pair, hashed from its addresses.
func pairOf(from, to *Endpoint) int {
	h := from.place*0x9e3779b97f4a7c15 ^ to.place
	h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
	return int(h>>33) % transferPairs
}

// placeOf returns the hash of an address.
func placeOf(address string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(address) {
		h = (h ^ uint64(address[i])) * 1099511628211
	}
	return h
}
