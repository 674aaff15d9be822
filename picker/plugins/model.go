package plugins

import (
	"strings"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type modelAffinityParams struct {
	LabelKey    string `json:"labelKey"`
	ModelHeader string `json:"modelHeader"`
}

// modelAffinity keeps the endpoints whose label equals the request's model: the value of a header
// or, without it, the model of the body. A request without either keeps all.
type modelAffinity struct{ label, header string }

func newModelAffinity(p modelAffinityParams) (plugin.Plugin, error) {
	f := modelAffinity{p.LabelKey, strings.ToLower(p.ModelHeader)}
	return plugin.Plugin{Filter: f}, plugin.Require(p.LabelKey != "", "labelKey", "must not be empty")
}

// Filter implements cycle.Filter.
func (f modelAffinity) Filter(c *cycle.Cycle, keep []bool) {
	model := ""
	if f.header != "" && c.Request.Headers != nil {
		model = c.Request.Headers.Get(f.header)
	}
	if model == "" {
		model = c.Request.Model
	}
	if model == "" {
		return
	}
	for k := range keep {
		v, ok := c.At(k).Label(f.label)
		keep[k] = ok && v == model
	}
}

type servedModelParams struct {
	OnMissing       string `json:"onMissing"`
	FallbackOnEmpty bool   `json:"fallbackOnEmpty"`
}

// newServedModel accepts the filter of other pickers by engines' model lists, which every decision
// applies here before any profile runs.
func newServedModel(p servedModelParams) (plugin.Plugin, error) {
	return plugin.Plugin{}, plugin.Faults(
		plugin.Require(p.OnMissing == "Pass" || p.OnMissing == "Fail", "onMissing", "must be Pass or Fail"),
		plugin.Foreign(p.OnMissing == "Fail", "onMissing", plugin.Replacement{
			Use:  "use onMissing: Pass: endpoints without a list are used only if no endpoint lists the model",
			Lost: "refusal of requests while no list has been read",
		}),
		plugin.Foreign(p.FallbackOnEmpty, "fallbackOnEmpty", plugin.Replacement{
			Use:  "use the flag --unknown-model place",
			Lost: "the choice for each profile: the flag applies to all requests",
		}))
}
