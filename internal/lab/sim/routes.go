package sim

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
)

const adminPrefix = "/sim/"

func isAdmin(path string) bool { return strings.HasPrefix(path, adminPrefix) }

// routes returns the handler of all routes.
func (e *Engine) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(*responder, *http.Request){
		"POST /v1/completions":             e.completions,
		"POST /v1/chat/completions":        e.chat,
		"POST /v1/messages":                e.messages,
		"GET /v1/models":                   e.models,
		"GET /health":                      e.health,
		"GET /ping":                        e.health,
		"GET /version":                     e.version,
		"GET /load":                        e.load,
		"GET /is_sleeping":                 func(w *responder, _ *http.Request) { w.send(http.StatusOK, map[string]bool{"is_sleeping": false}) },
		"GET /metrics":                     e.metrics,
		"POST /tokenize":                   e.tokenize,
		"POST /detokenize":                 e.detokenize,
		"POST /v1/chat/completions/render": func(w *responder, r *http.Request) { e.render(w, r, true) },
		"POST /v1/completions/render":      func(w *responder, r *http.Request) { e.render(w, r, false) },
		"GET /kv_event_sources":            e.sources,
		"POST /v1/load_lora_adapter":       e.loadLoRA,
		"POST /v1/unload_lora_adapter":     e.unloadLoRA,
		"POST /reset_prefix_cache":         e.resetPrefixCache,
		"POST " + pathRead:                 e.readBlocks,
		"POST " + pathDone:                 e.doneBlocks,
		"GET /sim/faults":                  e.getFaults,
		"PUT /sim/faults":                  e.putFaults,
		"POST /sim/restart":                e.postRestart,
		"GET /sim/stats":                   e.getStats,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { h(w.(*responder), r) })
	}
	return mux
}

func (e *Engine) health(w *responder, _ *http.Request) {
	if time.Now().Before(w.st.ready) {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (e *Engine) version(w *responder, _ *http.Request) {
	v, _ := e.named.Load().(string)
	w.send(http.StatusOK, map[string]string{"version": cmp.Or(v, "0.28.0")})
}

// SetVersion has the engine name another version from now on.
func (e *Engine) SetVersion(v string) { e.named.Store(v) }

func (e *Engine) load(w *responder, _ *http.Request) {
	n := 0
	for _, c := range w.st.cores {
		n += c.InFlight()
	}
	w.send(http.StatusOK, map[string]int{"server_load": n})
}

// models lists the base model, its aliases and the adapters.
func (e *Engine) models(w *responder, r *http.Request) {
	f := e.Faults()
	select {
	case <-time.After(f.ListDelay):
	case <-r.Context().Done():
	}
	if f.ListStatus > 0 {
		w.fail(&apiError{f.ListStatus, errInternal, "simulated fault", ""})
		return
	}
	type card struct {
		ID          string     `json:"id"`
		Object      string     `json:"object"`
		Created     int64      `json:"created"`
		OwnedBy     string     `json:"owned_by"`
		Root        string     `json:"root"`
		Parent      *string    `json:"parent"`
		MaxModelLen *int       `json:"max_model_len"`
		Permission  []struct{} `json:"permission"`
	}
	add := func(id, root string, parent *string, length *int) card {
		return card{id, "model", w.st.start.Unix(), "vllm", root, parent, length, []struct{}{}}
	}
	root := cmp.Or(e.opt.Root, e.opt.Model)
	cards := []card{add(e.opt.Model, root, nil, &e.opt.Core.MaxModelLen)}
	for _, alias := range e.opt.Aliases {
		cards = append(cards, add(alias, root, nil, &e.opt.Core.MaxModelLen))
	}
	for _, name := range e.lora.Loaded() {
		cards = append(cards, add(name, "/adapters/"+name, &e.opt.Model, nil))
	}
	w.send(http.StatusOK, struct {
		Object string `json:"object"`
		Data   []card `json:"data"`
	}{"list", cards})
}

// metrics writes the page in the Prometheus text format.
func (e *Engine) metrics(w *responder, _ *http.Request) {
	var ranks []*page.Meter
	for _, c := range w.st.cores {
		ranks = append(ranks, c.Meter())
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
	body := e.page.Append(make([]byte, 0, 128<<10), w.st.start, time.Now(), ranks, w.st.http)
	_, _ = w.Write(body) // the client is gone
}

// sources reports where KV events are published, in one of the formats of real engines.
func (e *Engine) sources(w *responder, r *http.Request) {
	if e.opt.Sources == "" {
		http.NotFound(w, r)
		return
	}
	type source struct {
		Rank     int     `json:"data_parallel_rank"`
		Endpoint string  `json:"endpoint"`
		Replay   *string `json:"replay_endpoint"`
		Topic    string  `json:"topic"`
	}
	list := []source{}
	byRank := map[int]source{}
	for rank, p := range w.st.pubs {
		s := source{Rank: rank, Endpoint: "tcp://" + p.Addr(), Topic: e.opt.Events.Topic}
		if a := p.ReplayAddr(); a != "" {
			a = "tcp://" + a
			s.Replay = &a
		}
		list = append(list, s)
		byRank[rank] = s
	}
	switch e.opt.Sources {
	case sourcesList:
		w.send(http.StatusOK, list)
	case sourcesKey:
		w.send(http.StatusOK, map[string]any{"sources": list})
	default:
		w.send(http.StatusOK, byRank)
	}
}

// decode reads a JSON body into v, or answers 400.
func (w *responder) decode(r *http.Request, v any) bool {
	body, fail := w.body(r)
	if fail == nil {
		if err := json.Unmarshal(body, v); err == nil {
			return true
		} else {
			fail = asAPIError(jsonError(err))
		}
	}
	w.fail(fail)
	return false
}
