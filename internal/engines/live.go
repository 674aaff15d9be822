package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/prompt/remote"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// Target is an endpoint to look at.
type Target struct {
	Name    string
	Address string // host:port
	Models  []string
	Engine  endpoint.EngineType
	Metrics string          // URL; "" for /metrics at the address
	Key     string          // shown to the engine; "" for none
	Streams []events.Stream // as configured; if empty, the engine is queried
}

// Live is the result of examining an engine.
type Live struct {
	Name      string                      `json:"name,omitempty"`
	Address   string                      `json:"address"`
	Engine    string                      `json:"engine"`
	Version   string                      `json:"version,omitempty"`
	BlockSize int                         `json:"block_size,omitempty"`
	Rendering map[string][]remote.Finding `json:"rendering,omitempty"` // by model
	Streams   []LiveStream                `json:"streams,omitempty"`
	// Cached is the number of cached tokens reported for the second of two equal prompts, out of
	// Prompt tokens. It is -1 if the response did not report it.
	Cached   int      `json:"cached_tokens"`
	Prompt   int      `json:"prompt_tokens"`
	Notes    []string `json:"notes,omitempty"`    // observations that need no action
	Problems []string `json:"problems,omitempty"` // failures
}

// LiveStream is an event stream of an engine.
type LiveStream struct {
	Events string   `json:"events"`
	Replay string   `json:"replay,omitempty"`
	Topic  string   `json:"topic,omitempty"` // as configured
	Topics []string `json:"topics"`          // under which something came
	Bytes  int      `json:"bytes"`           // bytes received
}

// Limits of a look at one engine.
const (
	liveTime    = 30 * time.Second
	streamTime  = 5 * time.Second // timeout for the event of a request
	maxPage     = 8 << 20
	maxAnswer   = 1 << 20
	promptWords = 100 // more than a block of any usual size
)

// Examine identifies an engine, compares its rendering of fixed chats with the rendering of models,
// and sends it two completions to check its event streams and responses.
func Examine(ctx context.Context, t Target, models *prompt.Models) *Live {
	ctx, cancel := context.WithTimeout(ctx, liveTime)
	defer cancel()
	l := &looker{t: t, url: "http://" + t.Address, client: events.Keyed(events.Client(liveTime), func() string { return t.Key }), out: &Live{Name: t.Name, Address: t.Address, Cached: -1}}
	e, err := ask(ctx, l.url, t.Key)
	if err != nil {
		l.problem("%v", err)
		return l.out
	}
	l.identify(ctx)
	for _, m := range e.Models {
		l.render(ctx, m.Name, models)
	}
	for _, name := range t.Models {
		if !slices.ContainsFunc(e.Models, func(m Model) bool { return m.Name == name }) {
			l.problem("it does not serve %s", name)
		}
	}
	l.watch(ctx, e.Models[0].Name)
	return l.out
}

type looker struct {
	t      Target
	url    string
	client *http.Client
	kind   endpoint.EngineType
	out    *Live
}

func (l *looker) problem(format string, args ...any) {
	l.out.Problems = append(l.out.Problems, fmt.Sprintf(format, args...))
}

func (l *looker) note(format string, args ...any) {
	l.out.Notes = append(l.out.Notes, fmt.Sprintf(format, args...))
}

// identify finds out kind, version and block size.
func (l *looker) identify(ctx context.Context) {
	page := l.t.Metrics
	if page == "" {
		page = l.url + "/metrics"
	}
	l.kind = l.t.Engine
	if _, body, err := l.do(ctx, http.MethodGet, page, nil, maxPage); err != nil {
		l.problem("its metrics page cannot be read: %v", err)
	} else if p, err := scrape.NewScanner().Scan(bytes.NewReader(body), l.kind); err != nil {
		l.problem("its metrics page has no load gauges: %v", err)
	} else {
		l.out.BlockSize, l.kind = p.BlockSize, p.Engine
	}
	l.out.Engine = l.kind.String()
	for _, path := range []string{"/version", "/server_info"} {
		var v struct{ Version string }
		if status, body, err := l.do(ctx, http.MethodGet, l.url+path, nil, maxPage); err == nil && status == http.StatusOK && json.Unmarshal(body, &v) == nil && v.Version != "" {
			l.out.Version = v.Version
			return
		}
	}
}

// render compares the engine's rendering of the fixed chats with the model's rendering here.
func (l *looker) render(ctx context.Context, name string, models *prompt.Models) {
	m, adapter, _ := models.Lookup(name)
	switch {
	case adapter != "":
		return
	case m == nil:
		l.note("model %s: no files here (--model %s=FOLDER): its rendering was not compared", name, name)
		return
	case !m.HasTemplate():
		l.note("model %s: no template here renders its chats", name)
		return
	}
	e := &remote.Engine{URL: l.url, Kind: l.kind, As: prompt.ProfileOf(l.kind.String(), l.out.Version), Client: l.client}
	for _, c := range remote.Chats {
		f, err := remote.Compare(ctx, e, m, name, c)
		if err != nil {
			f.Skipped = err.Error()
		}
		if l.out.Rendering == nil {
			l.out.Rendering = map[string][]remote.Finding{}
		}
		l.out.Rendering[name] = append(l.out.Rendering[name], f)
		if f.Complete() && !f.Equal {
			l.problem("model %s: %s", name, f.String())
		}
	}
}

// watch sends two equal prompts and checks the resulting events and responses.
func (l *looker) watch(ctx context.Context, model string) {
	streams := l.t.Streams
	if len(streams) == 0 {
		streams, _ = events.Discover(ctx, l.client, l.url, nil, events.Trust{})
	}
	if len(streams) == 0 {
		l.note("it reports no event stream, and none is configured: its cache is estimated from the requests sent to it")
	}
	listening := make([]*ear, len(streams))
	for i, s := range streams {
		listening[i] = listen(ctx, s)
		defer listening[i].close()
	}
	words := make([]string, promptWords)
	for i := range words {
		words[i] = strconv.FormatUint(rand.Uint64(), 36)
	}
	body, err := json.Marshal(map[string]any{"model": model, "prompt": strings.Join(words, " "), "max_tokens": 1, "temperature": 0})
	if err != nil {
		l.problem("%v", err)
		return
	}
	for range 2 { // the second should hit the cache entries of the first
		if !l.complete(ctx, body) {
			return
		}
	}
	if l.out.Cached < 0 {
		l.problem("its answers do not report cached tokens: start it with --enable-prompt-tokens-details (vLLM) or --enable-cache-report (SGLang)")
	}
	silent := true
	for i, s := range streams {
		if l.awaitMessage(ctx, s, listening[i]) {
			silent = false
		}
	}
	if silent && len(streams) > 0 {
		l.problem("no event for a new prompt arrived within %s: check that --kv-events-config sets enable_kv_cache_events and that prefix caching is enabled", streamTime)
	}
}

// complete sends a prompt and records the usage that the response reports.
func (l *looker) complete(ctx context.Context, body []byte) bool {
	status, answer, err := l.do(ctx, http.MethodPost, l.url+"/v1/completions", body, maxAnswer)
	if err != nil || status != http.StatusOK {
		l.note("the test completion failed: status %d, %v", status, err)
		return false
	}
	var a struct {
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details *struct {
				Cached *int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		l.problem("its answers are not read: %v", err)
		return false
	}
	l.out.Prompt, l.out.Cached = a.Usage.Prompt, -1
	if d := a.Usage.Details; d != nil && d.Cached != nil {
		l.out.Cached = *d.Cached
	}
	return true
}

// do sends a request and returns a bounded response.
func (l *looker) do(ctx context.Context, method, url string, body []byte, most int64) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, most))
	return resp.StatusCode, data, err
}
