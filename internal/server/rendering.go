package server

import (
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/prompt/remote"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// openRendering creates the prober that requests engines' renderings of fixed chats.
func (s *Server) openRendering() (err error) {
	if !s.o.ProbeRendering || len(s.o.Models) == 0 && s.withoutSource() {
		return nil
	}
	s.rendering, err = remote.NewProber(remote.ProberOptions{
		Name: s.o.Name, Endpoints: func() []*endpoint.Endpoint { return s.pool.Snapshot().Endpoints }, Models: s.models.Registry(), Found: s.unlike,
		Profile: func(ep *endpoint.Endpoint) prompt.Profile { return s.profiles.Of(ep.ID) },
		Client:  s.engineClient(remote.NewClient()), Registerer: s.registry, Log: s.o.Log,
	})
	return err
}

// unlike reports to the matcher how an engine's rendering of chats differs from the local one.
func (s *Server) unlike(ep *endpoint.Endpoint, model string, found []remote.Finding) {
	chats, tools := "", ""
	for i := range found {
		switch f := &found[i]; {
		case !f.Complete() || f.Equal:
		case f.Tools() && tools == "":
			tools = f.String()
		case !f.Tools() && chats == "":
			chats = f.String()
		}
	}
	s.prefixes.NoteRenderingDiffs(ep, model, chats, tools)
}

// verdictChanged schedules another check of an engine's rendering.
func (s *Server) verdictChanged(ep *endpoint.Endpoint) { s.rendering.Recheck(ep) }

// findings returns an engine's results for fixed chats, by model.
func (s *Server) findings(ep *endpoint.Endpoint) map[string][]remote.Finding {
	var out map[string][]remote.Finding
	for _, m := range s.models.Registry().Status() {
		if found := s.rendering.Findings(ep.ID, m.Name); found != nil {
			if out == nil {
				out = map[string][]remote.Finding{}
			}
			out[m.Name] = found
		}
	}
	return out
}
