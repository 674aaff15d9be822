package prompt

import (
	"maps"
	"slices"
	"time"
)

// State is the load state of a configured model.
type State uint8

// States.
const (
	StateLoading State = iota // no version loaded yet
	StateReady
	StateFailed // its files could not be loaded, and there is no earlier version
	// StateLossy: its tokens do not represent all of their text, so prompts cannot be matched by
	// text.
	StateLossy
)

// String returns the state's name on status pages.
func (s State) String() string { return [...]string{"loading", "ready", "failed", "lossy"}[s] }

// Status is the state of one configured model.
type Status struct {
	Name     string
	Path     string
	State    State
	Renderer string        // jinja, engine or none
	Vocab    string        // how tokens map to bytes
	Tokens   int           // ids of the vocabulary
	Encodes  bool          // blocks can be checked for canonical tokens
	Error    string        // of the last attempt to load, "" when it worked
	LoadedAt time.Time     // when the version in use was read
	Took     time.Duration // duration of the load
	Media    string        // how images, sounds and videos are matched; "" if prompts cannot contain any
	Notes    []string
	Rendered uint64             // prompts rendered exactly
	Missed   [NumReasons]uint64 // prompts not rendered, by reason
}

// Names maps every alias and adapter to its base model's name.
func (m *Models) Names() map[string]string {
	out := map[string]string{}
	for name, t := range *m.table.Load() {
		out[name] = t.entry.conf.Options.Name
	}
	return out
}

// Unknown returns the number of requests for models that are not configured.
func (m *Models) Unknown() uint64 { return m.miss[ReasonNoModel].Load() }

// Status returns the state of each configured model, by name.
func (m *Models) Status() []Status {
	m.mu.Lock()
	entries := maps.Clone(m.entries)
	m.mu.Unlock()
	var out []Status
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		out = append(out, entries[name].status(m.opts.Engine != nil))
	}
	return out
}

func lossy(why string) string {
	return "tokens do not stand for all of their text (" + why + "): prompts are matched approximately"
}

func (e *entry) status(engine bool) Status {
	s := Status{Name: e.conf.Options.Name, Path: e.conf.Path, Rendered: e.rendered.Load()}
	for r := range s.Missed {
		s.Missed[r] = e.missed[r].Load()
	}
	e.mu.Lock()
	s.LoadedAt, s.Took = e.loaded, e.took
	if e.err != nil {
		s.Error, s.State = e.err.Error(), StateFailed
	}
	e.mu.Unlock()
	if model := e.model.Load(); model != nil {
		s.State, s.Renderer, s.Notes = StateReady, model.Renderer(), model.notes
		if why := model.vocab.Lossy(); why != "" {
			s.State = StateLossy
			if s.Error == "" {
				s.Error = lossy(why)
			}
		}
		s.Vocab, s.Tokens, s.Encodes = model.vocab.Mode().String(), model.vocab.Size(), model.vocab.CanEncode()
		if (model.EngineOnly() || model.chat == nil) && engine {
			s.Renderer = "engine"
		}
		s.Media = model.mediaStatus()
	}
	return s
}
