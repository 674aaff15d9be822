package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/prompt/vocab"
	"github.com/grapevine-epp/grapevine/internal/share"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// ModelStatus is what is known of one configured model.
type ModelStatus struct {
	Name          string            `json:"name"`
	State         string            `json:"state"` // loading, ready, failed
	Renderer      string            `json:"renderer,omitempty"`
	Vocabulary    string            `json:"vocabulary,omitempty"`
	Error         string            `json:"error,omitempty"`
	Rendered      uint64            `json:"rendered"`
	Missed        map[string]uint64 `json:"missed,omitempty"` // prompts matched approximately, by reason
	BytesPerToken float64           `json:"bytes_per_token,omitempty"`
	Notes         []string          `json:"notes,omitempty"`
}

// models joins the registry of models to what needs them: the request path
// (fill) and the event streams (eventModel). Models that are not configured share
// one anonymous model, matched by token ids and approximately. It is safe for concurrent use.
type models struct {
	hasher indexer.Hasher
	approx *indexer.Approx
	all    *prompt.Models

	mu     sync.Mutex
	events map[string]*events.Model // by canonical name, of the version in use
	source map[string]*prompt.Model
	ratios sync.Map // canonical name → *ratio
	texts  sync.Pool
}

// anonymous is the model of endpoints whose model is not configured.
var anonymous = &events.Model{}

// openModels begins to read the models of list. engines names the engines that
// can render what no template here can.
func openModels(list []ModelOptions, h indexer.Hasher, a *indexer.Approx, o prompt.ModelsOptions) (*models, error) {
	m := &models{
		hasher: h, approx: a, all: prompt.NewModels(o),
		events: map[string]*events.Model{}, source: map[string]*prompt.Model{},
	}
	m.texts.New = func() any { return new([]byte) }
	var configs []prompt.Config
	if err := distinct(list); err != nil {
		return nil, err
	}
	for _, o := range list {
		configs = append(configs, prompt.Config{Path: o.Path, Options: prompt.Options{
			Name: o.Name, Template: o.Template, Aliases: o.Aliases, Adapters: o.Adapters,
		}})
	}
	m.all.Set(configs)
	return m, nil
}

// distinct fails when a name stands for two things: what clients mean by it
// would be a matter of chance.
func distinct(list []ModelOptions) error {
	seen := map[string]string{}
	add := func(name, what string) error {
		if was := seen[name]; was != "" {
			return fmt.Errorf("server: %q is configured twice: as %s and as %s", name, was, what)
		}
		seen[name] = what
		return nil
	}
	for _, o := range list {
		errs := []error{add(o.Name, "a model")}
		for _, a := range o.Aliases {
			errs = append(errs, add(a, "an alias of "+o.Name))
		}
		for _, a := range o.Adapters {
			errs = append(errs, add(a, "an adapter of "+o.Name))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// eventModel returns what reading the streams of an endpoint needs, for the
// first of names that is configured; the only configured model when there are no names.
func (m *models) eventModel(names []string) *events.Model {
	if len(names) == 0 {
		if st := m.all.Status(); len(st) == 1 {
			names = []string{st[0].Name}
		}
	}
	for _, name := range names {
		if p, _, _ := m.all.Lookup(name); p != nil {
			return m.eventModelOf(p)
		}
	}
	return anonymous
}

func (m *models) eventModelOf(p *prompt.Model) *events.Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.source[p.Name()] != p {
		m.source[p.Name()] = p
		m.events[p.Name()] = &events.Model{Name: p.Name(), Vocabulary: p, Canonical: canonical(p)}
	}
	return m.events[p.Name()]
}

// canonical judges blocks that may hold generated tokens, nil when the
// vocabulary cannot encode. What cannot be decided counts as canonical.
func canonical(p *prompt.Model) events.Canonical {
	if p.NewChecker() == nil {
		return nil
	}
	type kit struct {
		c    *vocab.Checker
		prev []uint32
	}
	pool := sync.Pool{New: func() any { return &kit{c: p.NewChecker()} }}
	return func(prev []byte, ids []uint32, _ []byte) bool {
		k := pool.Get().(*kit)
		defer pool.Put(k)
		k.prev = k.prev[:0]
		if len(prev) > 0 {
			k.prev = p.Encode(k.prev, prev)
		}
		v, _ := k.c.Check(vocab.Window{Before: k.prev, Block: ids, Root: prev != nil && len(prev) == 0})
		return v != vocab.Deviates
	}
}

var promptKinds = [...]prompt.Kind{
	request.KindCompletions: prompt.KindCompletions, request.KindChat: prompt.KindChat, request.KindResponses: prompt.KindResponses,
	request.KindMessages: prompt.KindMessages, request.KindEmbeddings: prompt.KindEmbeddings, request.KindGenerate: prompt.KindGenerate,
}

// fill is the picker's prompt producer: exact queries where the prompt can be
// rendered, chunks always.
func (m *models) fill(r *request.Request) {
	p, adapter, _ := m.all.Lookup(r.Target)
	base := ""
	if p != nil {
		base, r.Adapter = p.Name(), adapter
	}
	scope := indexer.Scope{Space: indexer.SpaceChunks, Model: base, Adapter: r.Adapter, Salt: r.CacheSalt}
	r.Chunks.Root = m.hasher.Root(scope)
	r.ChunkKeys = m.approx.Keys(r.Chunks, r.ChunkKeys[:0])
	r.Exact, r.PromptBytes = r.Exact[:0], 0
	if r.Kind == request.KindOther || len(r.Body) == 0 {
		return
	}
	buf := m.texts.Get().(*[]byte)
	text, info, err := m.all.Render(context.Background(), r.Target, (*buf)[:0], r.Body, promptKinds[r.Kind])
	if err != nil || len(text) == 0 {
		m.texts.Put(buf)
		return
	}
	scope.Space = indexer.SpaceText
	root, start := m.hasher.Root(scope), 0
	for _, end := range info.Ends {
		r.Exact = append(r.Exact, indexer.Query{Root: root, Bytes: text[start:end]})
		start = end
	}
	if len(info.Ends) == 0 {
		r.Exact = append(r.Exact, indexer.Query{Root: root, Bytes: text})
	}
	r.PromptBytes = len(text)
	if r.InputTokens = info.Tokens; info.Tokens == 0 {
		r.InputTokens = int(float64(len(text)) / m.bytesPerToken(base))
	}
}

// release takes the rendered text back; Exact is void afterwards.
func (m *models) release(r *request.Request) {
	if len(r.Exact) == 0 {
		return
	}
	text := r.Exact[0].Bytes[:0] // the first prompt begins where the buffer does
	r.Exact = r.Exact[:0]
	m.texts.Put(&text)
}

// model returns the model behind a name, nil when it is not ready.
func (m *models) model(name string) *prompt.Model {
	p, _, _ := m.all.Lookup(name)
	return p
}

const (
	usualBytesPerToken = 4
	ratioMemory        = 64 // prompts that count
)

// ratio is how many bytes of a model's prompts make a token: the mean of the
// first prompts, then of the last ones.
type ratio struct {
	mu   sync.Mutex
	mean float64
	n    int
}

func (r *ratio) add(v float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n = min(r.n+1, ratioMemory)
	r.mean += (v - r.mean) / float64(r.n)
}

func (r *ratio) get() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 {
		return usualBytesPerToken
	}
	return r.mean
}

func (m *models) bytesPerToken(base string) float64 {
	if v, ok := m.ratios.Load(base); ok {
		return v.(*ratio).get()
	}
	return usualBytesPerToken
}

// learn notes how many tokens an engine made of a prompt of so many bytes.
func (m *models) learn(target string, bytes, tokens int) {
	p, _, _ := m.all.Lookup(target)
	if p == nil || tokens < 64 || bytes < tokens/4 {
		return
	}
	v, _ := m.ratios.LoadOrStore(p.Name(), new(ratio))
	v.(*ratio).add(float64(bytes) / float64(tokens))
}

func (m *models) status() []ModelStatus {
	out := []ModelStatus{}
	for _, s := range m.all.Status() {
		st := ModelStatus{
			Name: s.Name, State: s.State.String(), Renderer: s.Renderer, Vocabulary: s.Vocab, Error: s.Error,
			Rendered: s.Rendered, Notes: s.Notes, BytesPerToken: m.bytesPerToken(s.Name),
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

// inUse lists what every model name stands for.
func (m *models) inUse() (list []share.ModelInUse) {
	of := map[string]share.ModelInUse{}
	for _, st := range m.all.Status() {
		of[st.Name] = share.ModelInUse{Name: st.Name, Model: m.model(st.Name), Loading: st.State == prompt.StateLoading}
	}
	for name, base := range m.all.Names() {
		u := of[base]
		u.Name = name
		list = append(list, u)
	}
	return list
}

// version changes when a model has been read.
func (m *models) version() (v int64) {
	for _, s := range m.all.Status() {
		if !s.LoadedAt.IsZero() {
			v = v*31 + s.LoadedAt.UnixNano()
		}
	}
	return v
}

// ready reports whether no model is still being read for the first time.
func (m *models) ready() bool {
	for _, s := range m.all.Status() {
		if s.State == prompt.StateLoading {
			return false
		}
	}
	return true
}
