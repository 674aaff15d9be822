package prefix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/events/translate"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/prompt/media"
	"github.com/grapevine-epp/grapevine/internal/prompt/vocab"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Models provides the configured models to the request path (Fill) and the event streams
// (EventModel). Models that are not configured share one anonymous model, which is matched by token
// ids and approximately.
type Models struct {
	opts ModelsOptions
	all  *prompt.Models

	configured []ModelOptions

	mu     sync.Mutex
	events map[string]*events.Model // by canonical name, of the current version
	source map[string]*prompt.Model
	media  map[string]*media.Names // by canonical name
	ratios sync.Map                // canonical name → *ratio
	texts  sync.Pool
}

// anonymous is the model of endpoints with models that are not configured.
var anonymous = &events.Model{}

// OpenModels starts loading the models of list in the background, until Close.
func OpenModels(list []ModelOptions, o ModelsOptions) (*Models, error) {
	if err := distinct(list); err != nil {
		return nil, err
	}
	m := &Models{
		opts: o, all: prompt.NewModels(o.Prompt), configured: list,
		events: map[string]*events.Model{}, source: map[string]*prompt.Model{}, media: map[string]*media.Names{},
	}
	m.texts.New = func() any { return new([]byte) }
	m.SetFound(nil)
	return m, nil
}

// SetFound replaces the models that were found in addition to the configured ones, and loads new
// ones in the background. A name that is configured keeps its configured meaning. The names of
// found must be distinct.
func (m *Models) SetFound(found []ModelOptions) {
	var configs []prompt.Config
	m.mu.Lock()
	for _, o := range slices.Concat(found, m.configured) {
		names := m.media[o.Name]
		if names == nil {
			names = media.New(append([]string{o.Name, o.Path}, o.Aliases...)...)
			m.media[o.Name] = names
		}
		configs = append(configs, prompt.Config{Path: o.Path, Options: prompt.Options{
			Name: o.Name, Template: o.Template, Aliases: o.Aliases, Adapters: o.Adapters, Media: names,
		}})
	}
	m.mu.Unlock()
	m.all.Set(configs)
}

// Configures reports whether a name is a configured model, alias or adapter.
func (m *Models) Configures(name string) bool {
	return slices.ContainsFunc(m.configured, func(o ModelOptions) bool {
		return o.Name == name || slices.Contains(o.Aliases, name) || slices.Contains(o.Adapters, name)
	})
}

// distinct returns an error if a name is configured twice.
func distinct(list []ModelOptions) error {
	seen := map[string]string{}
	add := func(name, what string) error {
		if was := seen[name]; was != "" {
			return fmt.Errorf("prefix: %q is configured twice: as %s and as %s", name, was, what)
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

// Registry returns the models by name, alias and adapter.
func (m *Models) Registry() *prompt.Models { return m.all }

// Close stops loading models and waits.
func (m *Models) Close() { m.all.Close() }

// EventModel returns the data for reading an endpoint's streams: of the first of its models that is
// ready, or of the only configured model if the endpoint names none. It changes with Version and
// with the endpoint's models.
func (m *Models) EventModel(ep *endpoint.Endpoint) *events.Model {
	names := ep.Models
	if len(names) == 0 {
		names = ep.BaseModels()
	}
	for _, name := range names {
		if p := m.Model(name); p != nil {
			return m.eventModelOf(p)
		}
	}
	if len(ep.Models) == 0 && len(m.configured) == 1 {
		if p := m.Model(m.configured[0].Name); p != nil {
			return m.eventModelOf(p)
		}
	}
	return anonymous
}

func (m *Models) eventModelOf(p *prompt.Model) *events.Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	// A model whose tokens have the same meaning yields the same keys, so its streams continue.
	if old := m.source[p.Name()]; old == nil || old.Fingerprint() != p.Fingerprint() {
		m.source[p.Name()] = p
		next := &events.Model{Name: p.Name(), Vocabulary: p, Canonical: canonical(p)}
		if names := m.media[p.Name()]; names != nil {
			next.Medium = names.Add
		}
		m.events[p.Name()] = next
	}
	return m.events[p.Name()]
}

// canonical returns the check for blocks that may hold generated tokens, nil if the vocabulary
// cannot encode. Undecidable blocks count as canonical.
func canonical(p *prompt.Model) translate.Canonical {
	if p.NewChecker() == nil {
		return nil
	}
	pool := sync.Pool{New: func() any { return p.NewChecker() }}
	return func(prev []byte, ids []uint32, _ []byte) bool {
		c := pool.Get().(*vocab.Checker)
		defer pool.Put(c)
		v, _ := c.Check(vocab.Window{Text: prev, Block: ids, Root: prev != nil && len(prev) == 0})
		return v != vocab.Deviates
	}
}

var promptKinds = [...]prompt.Kind{
	request.KindCompletions: prompt.KindCompletions, request.KindChat: prompt.KindChat, request.KindResponses: prompt.KindResponses,
	request.KindMessages: prompt.KindMessages, request.KindEmbeddings: prompt.KindEmbeddings, request.KindGenerate: prompt.KindGenerate,
}

// Fill implements picker.Prompts: it adds exact queries if the prompt can be rendered, and always
// chunks.
func (m *Models) Fill(ctx context.Context, r *request.Request) {
	p, adapter, _ := m.all.Lookup(r.Target)
	base := ""
	if p != nil {
		base, r.Adapter = p.Name(), adapter
	}
	scope := block.Scope{Space: block.SpaceChunks, Model: base, Adapter: r.Adapter, Salt: r.CacheSalt}
	r.Chunks.Root = m.opts.Hasher.Root(scope)
	r.ChunkKeys = m.opts.Approx.Keys(r.Chunks, r.ChunkKeys[:0])
	r.Exact, r.Variants, r.PromptBytes = r.Exact[:0], r.Variants[:0], 0
	profiles := m.opts.Profiles.all()
	text, info := m.render(ctx, r, profiles[0])
	if len(text) == 0 {
		return
	}
	r.Exact = queries(r.Exact, m.root(r), text, &info)
	facts := info.Facts
	if r.CacheSalt != "" {
		facts |= prompt.FactSalts
	}
	if p != nil && p.Hybrid() {
		facts |= prompt.FactGroups
	}
	m.variants(ctx, r, profiles, facts)
	if info.Media || info.Truncated {
		return // the token count of a medium is not visible in the text
	}
	r.PromptBytes = len(text)
	if r.InputTokens = info.Tokens; info.Tokens == 0 {
		r.InputTokens = int(float64(len(text)) / m.bytesPerToken(base))
	}
}

// variants adds renderings of r for engine profiles that differ from the first one, depending on
// facts. For engines with an unknown fact, the prompt is not matched exactly.
func (m *Models) variants(ctx context.Context, r *request.Request, profiles []prompt.Profile, facts prompt.Fact) {
	for i, as := range profiles {
		switch v := (request.Variant{Profile: uint32(as)}); {
		case as.Unknown(facts):
			r.Variants = append(r.Variants, v)
		case i > 0 && !profiles[0].Same(as, facts):
			if text, info := m.render(ctx, r, as); len(text) > 0 && !as.Unknown(info.Facts) {
				v.Exact = queries(nil, m.root(r), text, &info)
			}
			r.Variants = append(r.Variants, v)
		}
	}
}

// render renders the prompt of r into a pooled buffer, nil if impossible. giveBack returns the
// buffer.
func (m *Models) render(ctx context.Context, r *request.Request, as prompt.Profile) ([]byte, prompt.Info) {
	if r.Kind == request.KindOther || len(r.Body) == 0 {
		return nil, prompt.Info{}
	}
	buf := m.texts.Get().(*[]byte)
	text, info, err := m.all.RenderAs(ctx, r.Target, (*buf)[:0], r.Body, promptKinds[r.Kind], as)
	if err != nil || len(text) == 0 {
		m.texts.Put(buf)
		return nil, prompt.Info{}
	}
	return text, info
}

// keepText is the largest pooled buffer in bytes. Larger texts grow their buffer by doubling each
// time.
const keepText = 1 << 20

// giveBack returns a buffer to the pool.
func (m *Models) giveBack(text []byte) {
	if cap(text) > keepText {
		return
	}
	text = text[:0]
	m.texts.Put(&text)
}

// root returns the root key of r's rendered prompt.
func (m *Models) root(r *request.Request) block.Key {
	scope := block.Scope{Space: block.SpaceText, Adapter: r.Adapter, Salt: r.CacheSalt}
	if p := m.Model(r.Target); p != nil {
		scope.Model = p.Name()
	}
	return m.opts.Hasher.Root(scope)
}

// queries appends one query per prompt in text. info has the ends of several prompts, and of their
// tokens if the request contains token ids.
func queries(dst []block.Query, root block.Key, text []byte, info *prompt.Info) []block.Query {
	start, cuts := 0, info.Cuts
	add := func(end int) {
		q := block.Query{Root: root, Bytes: text[start:end]}
		n := 0
		for n < len(cuts) && int(cuts[n]) <= end {
			n++
		}
		if q.Tokens, cuts = cuts[:n:n], cuts[n:]; n == 0 {
			q.Tokens = nil
		}
		for i := range q.Tokens {
			q.Tokens[i] -= int32(start)
		}
		dst, start = append(dst, q), end
	}
	for _, end := range info.Ends {
		add(end)
	}
	if len(info.Ends) == 0 {
		add(len(text))
	}
	return dst
}

// Release implements picker.Prompts.
func (m *Models) Release(r *request.Request) {
	if len(r.Exact) == 0 {
		return
	}
	for _, v := range r.Variants {
		if len(v.Exact) > 0 {
			m.giveBack(v.Exact[0].Bytes)
		}
	}
	clear(r.Variants)
	r.Variants = r.Variants[:0]
	m.giveBack(r.Exact[0].Bytes) // the first prompt starts at the beginning of the buffer
	clear(r.Exact)
	r.Exact = r.Exact[:0]
}

// Model returns the model behind a name, nil if it is not ready.
func (m *Models) Model(name string) *prompt.Model {
	p, _, _ := m.all.Lookup(name)
	return p
}
