package prefix

import "github.com/grapevine-epp/grapevine/internal/prompt"

// ModelStatus is the status of one configured model.
type ModelStatus struct {
	Name          string            `json:"name"`
	State         string            `json:"state"` // loading, ready, failed
	Renderer      string            `json:"renderer,omitempty"`
	Vocabulary    string            `json:"vocabulary,omitempty"`
	Error         string            `json:"error,omitempty"`
	Rendered      uint64            `json:"rendered"`
	Missed        map[string]uint64 `json:"missed,omitempty"` // prompts matched approximately, by reason
	BytesPerToken float64           `json:"bytes_per_token,omitempty"`
	Media         string            `json:"media,omitempty"` // how images, audio and video are matched
	Notes         []string          `json:"notes,omitempty"`
}

// Status returns the status of each configured model.
func (m *Models) Status() []ModelStatus {
	out := []ModelStatus{}
	for _, s := range m.all.Status() {
		st := ModelStatus{
			Name: s.Name, State: s.State.String(), Renderer: s.Renderer, Vocabulary: s.Vocab, Error: s.Error,
			Rendered: s.Rendered, Notes: s.Notes, Media: s.Media, BytesPerToken: m.bytesPerToken(s.Name),
		}
		for r, n := range s.Missed {
			if n > 0 {
				if st.Missed == nil {
					st.Missed = map[string]uint64{}
				}
				st.Missed[prompt.Reason(r).String()] = n
			}
		}
		out = append(out, st)
	}
	return out
}

// Version changes when a model has been loaded.
func (m *Models) Version() (v int64) {
	for _, s := range m.all.Status() {
		if !s.LoadedAt.IsZero() {
			v = v*31 + s.LoadedAt.UnixNano()
		}
	}
	return v
}

// Ready reports whether no model is still being loaded for the first time.
func (m *Models) Ready() bool {
	for _, s := range m.all.Status() {
		if s.State == prompt.StateLoading {
			return false
		}
	}
	return true
}
