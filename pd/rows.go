package pd

import (
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/plugins"
)

// Table returns all built-in plugin types of package plugins and of this package.
func Table() plugin.Table { return plugins.Builtin().With(rows()...) }

// rows returns the plugin types of this package.
func rows() plugin.Table {
	return plugin.Table{
		{Name: "disagg-profile-handler", Kind: plugin.KindHandler,
			Summary: "Prefill, decode and encode at separate endpoints.", New: disagg(nil)},
		{Name: "pd-profile-handler", Kind: plugin.KindHandler,
			Summary: "Prefill and decode at separate endpoints; the older name.", New: disagg(new(int))},
		{Name: "predicted-pd-decider", Kind: plugin.KindDecider,
			Summary: "Chooses a pair, or one endpoint for both, by predicted cost.", New: plugin.WithParams(predictedDefaults(), newPredicted)},
		{Name: "prefix-based-pd-decider", Kind: plugin.KindDecider,
			Summary: "Splits requests with many uncached tokens.", New: plugin.WithParams(prefixDeciderParams{}, newPrefixDecider)},
		{Name: "always-disagg-pd-decider", Kind: plugin.KindDecider,
			Summary: "Splits every request.", New: plugin.Fixed(plugin.Plugin{Decider: Always})},
		{Name: "always-disagg-multimodal-decider", Kind: plugin.KindDecider,
			Summary: "Splits requests with images or sound.", New: plugin.Fixed(plugin.Plugin{Decider: Media})},
	}
}
