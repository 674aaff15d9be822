package pd

import "github.com/grapevine-epp/grapevine/picker/plugins"

// Table lists every plugin type that is built in: those of package plugins, and
// those of this one.
func Table() plugins.Table { return plugins.Builtin().With(rows()...) }

// rows are the plugin types of this package.
func rows() plugins.Table {
	return plugins.Table{
		{Name: "disagg-profile-handler", Kind: plugins.KindHandler,
			Summary: "Prefill, decode and encode at endpoints of their own.", New: disagg(nil)},
		{Name: "pd-profile-handler", Kind: plugins.KindHandler,
			Summary: "Prefill and decode at endpoints of their own; the older name.", New: disagg(new(int))},
		{Name: "prefix-based-pd-decider", Kind: plugins.KindDecider,
			Summary: "Splits requests with many tokens that are not held.", New: plugins.WithParams(prefixDeciderParams{}, newPrefixDecider)},
		{Name: "always-disagg-pd-decider", Kind: plugins.KindDecider,
			Summary: "Splits every request.", New: plugins.Fixed(plugins.Plugin{Decider: Always})},
		{Name: "always-disagg-multimodal-decider", Kind: plugins.KindDecider,
			Summary: "Splits requests with images or sound.", New: plugins.Fixed(plugins.Plugin{Decider: Media})},
	}
}
