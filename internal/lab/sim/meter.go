package sim

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

// below returns how many observations lie in the first n buckets.
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

// meter holds the figures of one core that its metrics page shows. The core's
// goroutine writes, scrapes read.
type meter struct {
	mu       sync.Mutex
	stats    engine.Stats
	hists    [numHists]histogram
	finished map[string]uint64 // by reason
	lora     map[[2]string]float64
	names    func(uint32) string // adapter names; nil: none
}

func newMeter(c engine.Config) *meter {
	m := &meter{finished: map[string]uint64{}, lora: map[[2]string]float64{}}
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
func (m *meter) snapshot() *meter {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &meter{stats: m.stats, finished: maps.Clone(m.finished), lora: maps.Clone(m.lora)}
	for i := range m.hists {
		s.hists[i] = m.hists[i].clone()
	}
	return s
}

func (m *meter) gauges(s engine.Stats) {
	m.mu.Lock()
	m.stats = s
	m.mu.Unlock()
}

// maxLoRASeries bounds the adapter combinations that stay on the page.
const maxLoRASeries = 64

// adapters records which adapters run and wait, with the time, as its own
// series for every combination.
func (m *meter) adapters(e *engine.Engine) {
	if m.names == nil {
		return
	}
	var lists [2][]string
	e.EachAdapter(func(id uint32, running bool) {
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

func (m *meter) step(r *engine.Result) {
	m.mu.Lock()
	m.hists[histIteration].observe(float64(r.Prefill + r.Decoding))
	m.mu.Unlock()
}

func (m *meter) token(j *job, k engine.Mark, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.Generated == 1 {
		j.first = now
		m.hists[histTTFT].observe(now.Sub(j.arrived).Seconds())
		m.hists[histComputed].observe(float64(j.req.Prompt - k.Cached))
	} else {
		m.hists[histITL].observe(now.Sub(j.latest).Seconds())
	}
	j.latest = now
}

// done records a job that ran to its end.
func (m *meter) done(j *job, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reason := finishLength
	if j.stop {
		reason = finishStop
	}
	m.finished[reason]++
	for i, v := range map[int]float64{
		histPrompt: float64(j.req.Prompt), histGenerated: float64(j.req.Output), histMaxTokens: float64(j.req.Output),
		histE2E: now.Sub(j.arrived).Seconds(), histQueue: j.begun.Sub(j.arrived).Seconds(),
		histInference: now.Sub(j.begun).Seconds(), histPrefill: j.first.Sub(j.begun).Seconds(),
		histDecode: now.Sub(j.first).Seconds(),
	} {
		m.hists[i].observe(v)
	}
	if j.req.Output > 1 {
		m.hists[histTPOT].observe(now.Sub(j.first).Seconds() / float64(j.req.Output-1))
	}
}

func (m *meter) ended(reason string) {
	m.mu.Lock()
	m.finished[reason]++
	m.mu.Unlock()
}
