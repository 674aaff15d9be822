package prompt

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/internal/budget"
)

// Config is one configured model.
type Config struct {
	Path    string // folder with the model's files
	Options Options
}

// ModelsOptions configures a Models.
type ModelsOptions struct {
	Log    *slog.Logger     // nil discards
	Now    func() time.Time // nil = time.Now
	Engine EngineRenderer   // nil = prompts that only an engine can render are not rendered
	Budget *budget.Budget   // memory budget for renderings; nil = no limit
	// load replaces Load in tests.
	load func(dir string, o Options) (*Model, error)
}

// EngineRenderer renders a chat body for the named model by an engine, in text space. On an error,
// an *Error, dst is unchanged. It must be safe for concurrent use.
type EngineRenderer func(ctx context.Context, m *Model, name string, dst, body []byte) ([]byte, Info, error)

// Models is the registry of the configured models by name, alias and adapter. Models are loaded in
// the background and replaced atomically. Safe for concurrent use.
type Models struct {
	opts   ModelsOptions
	miss   [NumReasons]atomic.Uint64 // requests for models that are not configured
	logged atomic.Bool               // whether a request for an unconfigured model was logged

	mu      sync.Mutex
	entries map[string]*entry // by canonical name
	names   map[string]names  // by canonical name
	closed  bool
	pending int           // models being loaded or queued for loading
	idle    chan struct{} // closed while pending is 0
	gate    chan struct{} // one model is loaded at a time

	table atomic.Pointer[map[string]target]
}

// names are the further names of a model.
type names struct{ aliases, adapters []string }

// entry is one configured model.
type entry struct {
	conf  Config
	model atomic.Pointer[Model]
	gen   int // of the newest load; guarded by Models.mu

	mu     sync.Mutex
	err    error
	loaded time.Time
	took   time.Duration
	sum    uint64 // checksum of the files of the model in use; 0 = unknown

	rendered atomic.Uint64
	missed   [NumReasons]atomic.Uint64
	logged   [NumReasons]atomic.Bool
}

// target is the entry that a model name resolves to.
type target struct {
	entry   *entry
	adapter string // the name itself if it is an adapter's
}

// NewModels returns an empty registry; Set fills it.
func NewModels(o ModelsOptions) *Models {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.load == nil {
		o.load = Load
	}
	m := &Models{opts: o, entries: map[string]*entry{}, gate: make(chan struct{}, 1), idle: make(chan struct{})}
	close(m.idle)
	m.table.Store(&map[string]target{})
	return m
}

// Set replaces the configured models and starts loading new or changed ones. Removed models are
// dropped at once. A changed model keeps serving its old version until the new one is loaded. New
// aliases and adapters take effect at once.
func (m *Models) Set(configs []Config) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	next := make(map[string]*entry, len(configs))
	m.names = make(map[string]names, len(configs))
	var changed []*entry
	for _, c := range configs {
		name := c.Options.Name
		m.names[name] = names{c.Options.Aliases, c.Options.Adapters}
		e := m.entries[name]
		if e == nil || !sameConfig(e.conf, c) {
			fresh := &entry{conf: c}
			if e != nil {
				fresh.model.Store(e.model.Load())
			}
			e = fresh
			changed = append(changed, e)
		}
		next[name] = e
	}
	m.entries = next
	m.publish()
	for _, e := range changed {
		m.start(e)
	}
}

// sameConfig reports whether two configurations load the same model. Names do not matter.
func sameConfig(a, b Config) bool {
	x, y := a.Options, b.Options
	return a.Path == b.Path && x.Vocabulary == y.Vocabulary && x.Template == y.Template && x.Pattern == y.Pattern && x.Content == y.Content &&
		x.Tools == y.Tools && x.HideTools == y.HideTools && x.Kwargs == y.Kwargs && x.EngineOnly == y.EngineOnly
}

// publish rebuilds the table of names. Canonical names take precedence over aliases, aliases over
// adapters.
func (m *Models) publish() {
	t := map[string]target{}
	for name, e := range m.entries {
		for _, a := range m.names[name].adapters {
			t[a] = target{e, a}
		}
	}
	for name, e := range m.entries {
		for _, a := range m.names[name].aliases {
			t[a] = target{e, ""}
		}
	}
	for name, e := range m.entries {
		t[name] = target{e, ""}
	}
	m.table.Store(&t)
}

// Reload reloads every configured model whose files have changed. The current versions serve until
// then.
func (m *Models) Reload() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	for _, e := range m.entries {
		m.start(e)
	}
}

// start loads a model in the background. The caller must hold m.mu.
func (m *Models) start(e *entry) {
	e.gen++
	gen := e.gen
	if m.pending++; m.pending == 1 {
		m.idle = make(chan struct{})
	}
	go func() {
		defer m.done()
		m.gate <- struct{}{}
		defer func() { <-m.gate }()
		m.load(e, gen)
	}()
}

// done ends one background load.
func (m *Models) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending--; m.pending == 0 {
		close(m.idle)
	}
}

// load loads a model and publishes it unless a newer load has begun.
func (m *Models) load(e *entry, gen int) {
	stale := func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.closed || e.gen != gen
	}
	if stale() {
		return
	}
	sum := contentSum(e.conf)
	if sum != 0 && e.unchanged(sum) {
		m.opts.Log.Debug("model files unchanged", "model", e.conf.Options.Name)
		return
	}
	start := m.opts.Now()
	model, err := m.opts.load(e.conf.Path, e.conf.Options)
	end := m.opts.Now()
	if stale() {
		return
	}
	log := m.opts.Log.With("model", e.conf.Options.Name, "path", e.conf.Path)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.sum = err, 0
	if err != nil {
		log.Warn("model files are unreadable, prompts of the model are matched approximately", "error", err)
		return
	}
	e.loaded, e.took, e.sum = end, end.Sub(start), sum
	e.model.Store(model)
	if why := model.vocab.Lossy(); why != "" {
		log.Warn("vocabulary cannot be decoded, prompts of the model are matched approximately", "reason", why)
		return
	}
	log.Info("model ready", "renderer", model.Renderer(), "vocabulary", model.vocab.Mode().String(), "tokens", model.vocab.Size(), "notes", strings.Join(model.notes, "; "))
}

// unchanged reports whether the current model was loaded from files with this checksum.
func (e *entry) unchanged(sum uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sum == sum
}

// Lookup returns the model for a name, and the adapter if the name is an adapter's. If the model is
// not ready it returns nil and the reason.
func (m *Models) Lookup(name string) (model *Model, adapter string, reason Reason) {
	t, ok := (*m.table.Load())[name]
	if !ok {
		return nil, "", ReasonNoModel
	}
	model, reason = t.entry.get()
	return model, t.adapter, reason
}

func (e *entry) get() (*Model, Reason) {
	if model := e.model.Load(); model != nil {
		return model, ReasonNone
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return nil, ReasonFailed
	}
	return nil, ReasonLoading
}

// Memory limit of one rendering, in bytes: a constant plus a multiple of the body's size. It covers
// the values, unescaped strings, the template's output and the output in text space. Templates that
// exceed their limit draw on the budget.
const (
	renderBase     = 256 << 10
	renderFactor   = 12
	templateBase   = 128 << 10
	templateFactor = 3
)

// Render renders a body's prompt for the named model and counts the outcome. If a template cannot
// render it, the engine renderer, if set, is used. On an error dst is returned unchanged.
func (m *Models) Render(ctx context.Context, name string, dst, body []byte, kind Kind) (out []byte, info Info, err error) {
	return m.RenderAs(ctx, name, dst, body, kind, 0)
}

// RenderAs is Render for engines of a profile.
func (m *Models) RenderAs(ctx context.Context, name string, dst, body []byte, kind Kind, as Profile) (out []byte, info Info, err error) {
	t, ok := (*m.table.Load())[name]
	if !ok {
		m.miss[ReasonNoModel].Add(1)
		if !m.logged.Swap(true) {
			m.opts.Log.Warn("requests name a model without a configured tokenizer: its prompts are matched approximately", "model", budget.PrintableName(name))
		}
		return dst, Info{}, &Error{Reason: ReasonNoModel}
	}
	cost := renderBase + renderFactor*len(body)
	if !m.opts.Budget.Take(budget.Work, cost) {
		err := failure(ReasonMemory, "%d bytes are needed for a body of %d", cost, len(body))
		m.count(t.entry, ReasonMemory, err)
		return dst, Info{}, err
	}
	defer func() { m.opts.Budget.Release(budget.Work, cost) }()
	more := func(n int) bool {
		ok := m.opts.Budget.Take(budget.Work, n)
		if ok {
			cost += n
		}
		return ok
	}
	here := func(model *Model) ([]byte, Info, error) {
		end, ok := m.opts.Budget.AcquireCPU(ctx, len(body))
		switch {
		case ok:
		case errors.Is(ctx.Err(), context.Canceled):
			return dst, Info{}, &Error{ReasonDeadline, ctx.Err()}
		default:
			return dst, Info{}, failure(ReasonDeadline, "other large bodies were rendered for all of its time")
		}
		defer end()
		return model.render(ctx, dst, body, kind, as, more)
	}
	model, reason := t.entry.get()
	if model == nil {
		err = &Error{Reason: reason}
	} else if out, info, err = here(model); err != nil && m.opts.Engine != nil && engineCanHelp(ReasonOf(err), kind) {
		out, info, err = m.opts.Engine(ctx, model, name, dst, body)
	}
	if err != nil {
		m.count(t.entry, ReasonOf(err), err)
		return dst, Info{}, err
	}
	t.entry.rendered.Add(1)
	if info.Truncated {
		t.entry.missed[ReasonMedia].Add(1)
	}
	return out, info, nil
}

// engineCanHelp reports whether an engine may render a prompt that failed here for this reason.
func engineCanHelp(r Reason, kind Kind) bool {
	return kind == KindChat && (r == ReasonNoTemplate || r == ReasonUnsupported)
}

// count counts a miss. It logs the first miss of each reason, unless the request alone caused it or
// the client disconnected.
func (m *Models) count(e *entry, r Reason, err error) {
	e.missed[r].Add(1)
	if r != ReasonBody && r != ReasonLoading && !errors.Is(err, context.Canceled) && !e.logged[r].Swap(true) {
		m.opts.Log.Warn("prompts of this model are matched approximately", "model", e.conf.Options.Name, "reason", r.String(), "error", err)
	}
}

// Wait blocks until no model is being loaded, or ctx ends.
func (m *Models) Wait(ctx context.Context) error {
	m.mu.Lock()
	idle := m.idle
	m.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close stops loading and waits for running loads. Lookups still work afterwards.
func (m *Models) Close() {
	m.mu.Lock()
	m.closed = true
	idle := m.idle
	m.mu.Unlock()
	<-idle
}
