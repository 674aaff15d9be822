package page

import (
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
)

// histogram counts observations in buckets with upper bounds.
type histogram struct {
	bounds []float64
	counts []uint64 // one more than bounds
	sum    float64
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	h.counts[sort.SearchFloat64s(h.bounds, v)]++
	h.sum += v
}

func (h *histogram) clone() histogram {
	return histogram{h.bounds, slices.Clone(h.counts), h.sum}
}

// below returns the number of observations in the first n buckets.
func (h *histogram) below(n int) (sum uint64) {
	for _, c := range h.counts[:n] {
		sum += c
	}
	return sum
}

// Histograms of a core, by index.
const (
	histIteration = iota
	histPrompt
	histGenerated
	histMaxTokens
	histTTFT
	histITL
	histTPOT
	histE2E
	histQueue
	histInference
	histPrefill
	histDecode
	histComputed
	numHists
)

// Bucket bounds as vLLM has them.
var (
	stepBuckets  = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	ttftBuckets  = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBuckets = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	longBuckets  = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
)

// decades returns 1, 2, 5, 10, … up to limit.
func decades(limit int) (b []float64) {
	for base := 1; ; base *= 10 {
		for _, m := range []int{1, 2, 5} {
			if base*m > limit {
				return b
			}
			b = append(b, float64(base*m))
		}
	}
}

// Reasons for which requests finish.
const (
	FinishStop   = "stop"
	FinishLength = "length"
	ReasonAbort  = "abort"
)

// RequestTimes is the record of one request. The engine's goroutine owns First and Latest.
type RequestTimes struct {
	Prompt, Output int  // tokens
	Stop           bool // the answer ends by itself, not by a limit

	Arrived, Begun, First, Latest time.Time
}

// Meter holds the figures of one core that its metrics page shows. The core's
// goroutine writes, scrapes read.
type Meter struct {
	mu       sync.Mutex
	stats    engine.Stats
	read     func() Transfers // nil: none
	moved    Transfers
	hists    [numHists]histogram
	finished map[string]uint64 // by reason
	lora     map[[2]string]float64
	names    func(uint32) string // adapter names; nil: none
}

// NewMeter returns the meter of an engine; names gives the names of its adapters, nil: it has
// none.
func NewMeter(c engine.Config, names func(uint32) string) *Meter {
	m := &Meter{finished: map[string]uint64{}, lora: map[[2]string]float64{}, names: names}
	for i := range m.hists {
		bounds := longBuckets
		switch i {
		case histIteration:
			bounds = stepBuckets
		case histPrompt, histGenerated, histMaxTokens, histComputed:
			bounds = decades(c.MaxModelLen)
		case histTTFT:
			bounds = ttftBuckets
		case histITL, histTPOT:
			bounds = tokenBuckets
		}
		m.hists[i] = newHistogram(bounds)
	}
	return m
}

// snapshot returns a copy that does not change.
func (m *Meter) snapshot() *Meter {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &Meter{stats: m.stats, moved: m.transfers(), finished: maps.Clone(m.finished), lora: maps.Clone(m.lora)}
	for i := range m.hists {
		s.hists[i] = m.hists[i].clone()
	}
	return s
}

// Gauges sets the engine's current state.
func (m *Meter) Gauges(s engine.Stats) {
	m.mu.Lock()
	m.stats = s
	m.mu.Unlock()
}

// maxLoRASeries bounds the adapter combinations that stay on the page.
const maxLoRASeries = 64

// Adapters records the running and waiting adapters with the time, as a separate series for every
// combination.
func (m *Meter) Adapters(e *engine.Engine) {
	if m.names == nil {
		return
	}
	var lists [2][]string
	e.ForEachAdapter(func(id uint32, running bool) {
		at := 1
		if running {
			at = 0
		}
		if name := m.names(id); !slices.Contains(lists[at], name) {
			lists[at] = append(lists[at], name)
		}
	})
	key := [2]string{strings.Join(lists[0], ","), strings.Join(lists[1], ",")}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.lora[key]; !ok && (len(m.lora) >= maxLoRASeries || len(m.lora) == 0 && key == [2]string{}) {
		return
	}
	m.lora[key] = float64(time.Now().UnixMicro()) / 1e6
}

// Step records one step.
func (m *Meter) Step(r *engine.Result) {
	m.mu.Lock()
	m.hists[histIteration].observe(float64(r.Prefill + r.Decoding))
	m.mu.Unlock()
}

// Token records a token of a request, and notes its time there.
func (m *Meter) Token(j *RequestTimes, k engine.Mark, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.Generated == 1 {
		j.First = now
		m.hists[histTTFT].observe(now.Sub(j.Arrived).Seconds())
		m.hists[histComputed].observe(float64(j.Prompt - k.Cached))
	} else {
		m.hists[histITL].observe(now.Sub(j.Latest).Seconds())
	}
	j.Latest = now
}

// Done records a request that ran to its end.
func (m *Meter) Done(j *RequestTimes, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reason := FinishLength
	if j.Stop {
		reason = FinishStop
	}
	m.finished[reason]++
	for i, v := range map[int]float64{
		histPrompt: float64(j.Prompt), histGenerated: float64(j.Output), histMaxTokens: float64(j.Output),
		histE2E: now.Sub(j.Arrived).Seconds(), histQueue: j.Begun.Sub(j.Arrived).Seconds(),
		histInference: now.Sub(j.Begun).Seconds(), histPrefill: j.First.Sub(j.Begun).Seconds(),
		histDecode: now.Sub(j.First).Seconds(),
	} {
		m.hists[i].observe(v)
	}
	if j.Output > 1 {
		m.hists[histTPOT].observe(now.Sub(j.First).Seconds() / float64(j.Output-1))
	}
}

// Ended records a request that ended otherwise, with the reason.
func (m *Meter) Ended(reason string) {
	m.mu.Lock()
	m.finished[reason]++
	m.mu.Unlock()
}

// Stats returns the gauges as last set.
func (m *Meter) Stats() engine.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

// Transfers are counts of KV transfers.
type Transfers struct{ Expired, Failed, Late uint64 }

// ReadTransfers sets the source of the counts of KV transfers. It must be called before the page is read.
func (m *Meter) ReadTransfers(read func() Transfers) { m.read = read }

func (m *Meter) transfers() Transfers {
	if m.read == nil {
		return Transfers{}
	}
	return m.read()
}
