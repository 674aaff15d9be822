package remote

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// pathRender is the engines' path for rendering chats without generating.
const pathRender = "/v1/chat/completions/render"

// maxRenderAnswer bounds an engine's answer: a million ids of ten digits.
const maxRenderAnswer = 12 << 20

// Options configures a Renderer. Zero values mean the defaults in parentheses.
type Options struct {
	Client *http.Client // (one that follows no redirect and uses no proxy)
	// Endpoints returns the base URLs of engines that serve a model, such as
	// http://10.0.0.7:8000. It is called on the request path.
	Endpoints  func(model string) []string
	Timeout    time.Duration // of one rendering (50 ms)
	Concurrent int           // renderings at a time; more are refused (8)
	Failures   int           // consecutive failures that open the breaker (5)
	OpenFor    time.Duration // how long it stays open before one is tried (10 s)
	CacheBytes int           // of rendered prompts kept by the body's hash (32 MiB)
	Now        func() time.Time
}

// Renderer uses engines to render prompts that no template can render. Safe for concurrent use.
type Renderer struct {
	opts    Options
	seed    maphash.Seed
	slots   chan struct{}
	next    atomic.Uint32 // round-robin position of the next endpoint
	breaker breaker
	cache   renderCache
}

// New returns a Renderer.
func New(o Options) *Renderer {
	if o.Client == nil {
		o.Client = NewClient()
	}
	if o.Timeout == 0 {
		o.Timeout = 50 * time.Millisecond
	}
	if o.Concurrent == 0 {
		o.Concurrent = 8
	}
	if o.Failures == 0 {
		o.Failures = 5
	}
	if o.OpenFor == 0 {
		o.OpenFor = 10 * time.Second
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 32 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &Renderer{opts: o, seed: maphash.MakeSeed(), slots: make(chan struct{}, o.Concurrent)}
	e.breaker = breaker{limit: o.Failures, openFor: o.OpenFor}
	e.cache = renderCache{limit: o.CacheBytes, index: map[cacheKey]*cacheEntry{}}
	return e
}

// NewClient returns the default client. It does not follow redirects or use proxies from the
// environment, because they could forward prompts to other hosts.
func NewClient() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10},
	}
}

// Render renders a chat body by an engine and converts it to text space. It implements
// [prompt.EngineRenderer].
func (e *Renderer) Render(ctx context.Context, m *prompt.Model, name string, dst, body []byte) ([]byte, prompt.Info, error) {
	key := e.key(name, body)
	if out, info, ok := e.cache.get(dst, key); ok {
		return out, info, nil
	}
	ids, info, err := e.ask(ctx, name, body)
	if err != nil {
		return nil, prompt.Info{}, err
	}
	out, ok := m.AppendTokens(dst, ids)
	if !ok {
		return nil, prompt.Info{}, failed(prompt.ReasonUnknownToken, "an engine's rendering of %d ids", len(ids))
	}
	e.cache.put(key, out[len(dst):], info)
	return out, info, nil
}

func failed(r prompt.Reason, format string, args ...any) error {
	return &prompt.Error{Reason: r, Err: fmt.Errorf(format, args...)}
}

func (e *Renderer) key(name string, body []byte) cacheKey {
	var h maphash.Hash
	h.SetSeed(e.seed)
	h.WriteString(name)
	h.WriteByte(0)
	h.Write(body)
	return cacheKey{h.Sum64(), len(body)}
}

// ask sends the body to an engine, within the concurrency limit.
func (e *Renderer) ask(ctx context.Context, name string, body []byte) ([]uint32, prompt.Info, error) {
	var urls []string
	if e.opts.Endpoints != nil {
		urls = e.opts.Endpoints(name)
	}
	if len(urls) == 0 {
		return nil, prompt.Info{}, failed(prompt.ReasonBudget, "no engine to ask")
	}
	select {
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
	default:
		return nil, prompt.Info{}, failed(prompt.ReasonBudget, "%d renderings under way", cap(e.slots))
	}
	if !e.breaker.allow(e.opts.Now()) {
		return nil, prompt.Info{}, failed(prompt.ReasonBudget, "the breaker is open")
	}
	url := urls[int(e.next.Add(1))%len(urls)]
	ids, info, err := e.post(ctx, url+pathRender, body)
	if err != nil && ctx.Err() != nil {
		e.breaker.withdraw() // the client disconnected; the engine may be healthy
		return nil, prompt.Info{}, &prompt.Error{Reason: prompt.ReasonEngine, Err: ctx.Err()}
	}
	e.breaker.report(e.opts.Now(), err == nil)
	if err != nil {
		return nil, prompt.Info{}, &prompt.Error{Reason: prompt.ReasonEngine, Err: err}
	}
	return ids, info, nil
}

func (e *Renderer) post(ctx context.Context, url string, body []byte) ([]uint32, prompt.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, e.opts.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, prompt.Info{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.opts.Client.Do(req)
	if err != nil {
		return nil, prompt.Info{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxRenderAnswer+1))
	switch {
	case err != nil:
		return nil, prompt.Info{}, err
	case resp.StatusCode != http.StatusOK:
		return nil, prompt.Info{}, fmt.Errorf("engine answered %d", resp.StatusCode)
	case len(data) > maxRenderAnswer:
		return nil, prompt.Info{}, fmt.Errorf("engine answered more than %d bytes", maxRenderAnswer)
	}
	return renderedIDs(data)
}

// renderedIDs returns the token ids of an engine's response: under token_ids or prompt_token_ids,
// at the top level or in a list. If the prompt contains media, the ids end before the first
// placeholder.
func renderedIDs(data []byte) ([]uint32, prompt.Info, error) {
	dec := value.Decoder{PackIDs: true}
	v, err := dec.Decode(data)
	if err != nil {
		return nil, prompt.Info{}, err
	}
	d, ids := findIDs(v, 0)
	if ids == nil {
		return nil, prompt.Info{}, fmt.Errorf("engine's answer holds no token ids")
	}
	info := prompt.Info{Engine: true}
	if at := firstPlaceholder(d); at >= 0 && at < len(ids) {
		ids, info.Truncated = ids[:at], true
	}
	info.Tokens = len(ids)
	return ids, info, nil
}

// findIDs returns the ids and the object that contains them.
func findIDs(v value.Value, depth int) (*value.Dict, []uint32) {
	if depth > 4 {
		return nil, nil
	}
	if d := v.Dict(); d != nil {
		for _, key := range []string{"token_ids", "prompt_token_ids"} {
			if v, ok := d.Get(key); ok && v.Kind() == value.KindIDs {
				return d, v.IDs()
			}
		}
		return nil, nil
	}
	for _, it := range v.Items() {
		if d, ids := findIDs(it, depth+1); ids != nil {
			return d, ids
		}
	}
	return nil, nil
}

// firstPlaceholder returns the offset of the first media placeholder, or -1.
func firstPlaceholder(d *value.Dict) int {
	features, _ := d.Get("features")
	if features.Dict() == nil {
		return -1
	}
	at := -1
	places, _ := features.Dict().Get("mm_placeholders")
	if places.Dict() == nil {
		return 0 // media at an unknown position
	}
	places.Dict().Range(func(_ string, list value.Value) bool {
		for _, it := range list.Items() {
			if it.Dict() == nil {
				continue
			}
			off, _ := it.Dict().Get("offset")
			if n, ok := off.Int(); ok && n >= 0 && (at < 0 || int(n) < at) {
				at = int(n)
			}
		}
		return true
	})
	return at
}
