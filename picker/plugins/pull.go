package plugins

import (
	"hash/fnv"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type pullParams struct {
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName,omitempty"`
	MinCachedTokenDelta         int    `json:"minCachedTokenDelta"`
	PrefillProfileName          string `json:"prefillProfileName"`
}

// usualPull has the defaults of other pickers.
var usualPull = pullParams{MinCachedTokenDelta: 1, PrefillProfileName: "prefill"}

// pull names the endpoint from which the one that computes the prompt fetches its blocks. Sources are
// the endpoints that hold at most one block less than the fullest one. One of them is drawn with
// weight 1/(1+waiting requests), by the request's ID.
type pull struct {
	delta int
	holds *plugin.Holdings // nil: all that is known
}

func newPull(p pullParams) (plugin.Plugin, error) {
	bind := func(h *plugin.Holdings) plugin.Plugin {
		return plugin.Plugin{Pull: pull{p.MinCachedTokenDelta, h}.source}
	}
	out := bind(nil)
	out.Bind = bind
	out.Differs = []string{"blocks count at the source in whatever tier they are; other pickers count those in host memory"}
	return out, plugin.Require(p.MinCachedTokenDelta >= 1, "minCachedTokenDelta", "must be at least 1")
}

// source returns the position of the source among all candidates, or -1.
func (p pull) source(c *cycle.Cycle) int32 {
	c.ShowAll()
	held := holdings(c, p.holds, c.Scratch(c.Len()))
	most := 0.
	for _, tokens := range held {
		most = max(most, tokens)
	}
	if most == 0 {
		return -1
	}
	block := func(k int) float64 {
		if run := c.Run(k); run.Blocks > 0 {
			return float64(run.Total()) / float64(run.Blocks)
		}
		return 0
	}
	weight := func(k int) float64 {
		if held[k] == 0 || held[k]+block(k) < most || c.At(k).IsRemote() {
			return 0
		}
		return 1 / (1 + waiting(c.At(k)))
	}
	total := 0.
	for k := range held {
		total += weight(k)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.Request.ID))
	at, chosen := float64(h.Sum32())/(1<<32)*total, -1
	for k := range held {
		w := weight(k)
		if w == 0 {
			continue
		}
		if chosen = k; at < w {
			break
		}
		at -= w
	}
	if chosen < 0 {
		return -1
	}
	computing := c.Plan().Computes()
	if int32(chosen) == computing || held[chosen]-held[computing] < float64(p.delta) {
		return -1
	}
	return int32(chosen)
}
