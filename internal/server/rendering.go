package server

import (
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/prompt/remote"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// renderingDiffs describes how an engine's rendering differs from the local one: of chats without and
// with tools, "" for no difference.
func renderingDiffs(found []remote.Finding) (chats, tools string) {
	for i := range found {
		switch f := &found[i]; {
		case !f.Complete() || f.Equal:
		case f.Tools() && tools == "":
			tools = f.String()
		case !f.Tools() && chats == "":
			chats = f.String()
		}
	}
	return chats, tools
}

// findings returns an engine's results for fixed chats, by model.
func findings(models *prompt.Models, prober *remote.Prober, ep *endpoint.Endpoint) map[string][]remote.Finding {
	var out map[string][]remote.Finding
	for _, m := range models.Status() {
		if found := prober.Findings(ep.ID, m.Name); found != nil {
			if out == nil {
				out = map[string][]remote.Finding{}
			}
			out[m.Name] = found
		}
	}
	return out
}
