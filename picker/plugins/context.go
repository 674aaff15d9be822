package plugins

import (
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// Default labels of context-length-aware and accelerator-capability-aware.
const (
	labelContext    = "llm-d.ai/context-length-range"
	labelCapability = "llm-d.ai/accelerator-capability-range"
)

type contextParams struct {
	Label           string `json:"label"`
	EnableFiltering bool   `json:"enableFiltering"`
}

// contextLength prefers endpoints whose label (min-max, in tokens) covers the request's input. The
// score is above 0.3 if it does, higher for a tighter range and more headroom; below 0.3 if it does
// not, decreasing with the distance; 0.5 without a label.
type contextLength struct{ label string }

func newContextLength(p contextParams) (plugin.Plugin, error) {
	s := contextLength{p.Label}
	out := plugin.Plugin{Scorer: s}
	if p.EnableFiltering {
		out.Filter = s
	}
	return out, plugin.Require(p.Label != "", "label", "must not be empty")
}

// Filter implements cycle.Filter. It excludes endpoints whose label does not cover the input or is
// not a range.
func (s contextLength) Filter(c *cycle.Cycle, keep []bool) {
	for k := range keep {
		label, ok := c.At(k).Label(s.label)
		if !ok {
			continue
		}
		low, high, ok := contextRange(label)
		keep[k] = ok && c.Request.InputTokens >= low && c.Request.InputTokens <= high
	}
}

// Score implements cycle.Scorer.
func (s contextLength) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		label, ok := c.At(k).Label(s.label)
		if !ok {
			scores[k] = .5
			continue
		}
		if low, high, ok := contextRange(label); ok {
			scores[k] = contextScore(c.Request.InputTokens, low, high)
		}
	}
}

func contextRange(label string) (low, high int, ok bool) {
	a, b, _ := strings.Cut(label, "-")
	low, err := strconv.Atoi(strings.TrimSpace(a))
	if err != nil {
		return 0, 0, false
	}
	high, err = strconv.Atoi(strings.TrimSpace(b))
	return low, high, err == nil && low <= high
}

func contextScore(tokens, low, high int) float64 {
	const outside = .3
	switch {
	case tokens > high:
		return outside / (1 + float64(tokens-high)/1000)
	case tokens < low:
		return outside / (1 + float64(low-tokens)/1000)
	case low == high:
		return 1
	}
	width := float64(high - low)
	tight := 1 / (1 + width/10000)
	room := float64(high-tokens) / width
	return outside + (1-outside)*(.7*tight+.3*room)
}
