package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// letters is a vocabulary of one token for each byte, in the order of byte-level files.
func letters() map[string]int {
	out, next := map[string]int{}, rune(0x100)
	for c := range 256 {
		r := rune(c)
		if c < '!' || c > '~' && c < 0xa1 || c == 0xad {
			r, next = next, next+1
		}
		out[string(r)] = c
	}
	return out
}

const plainTemplate = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"

// writeModel writes a model of single bytes with a chat template.
func writeModel(t *testing.T, template string) string {
	t.Helper()
	dir := t.TempDir()
	for name, v := range map[string]any{
		"tokenizer.json": map[string]any{
			"model":         map[string]any{"type": "BPE", "vocab": letters(), "merges": []string{}},
			"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false},
			"decoder":       map[string]any{"type": "ByteLevel"},
		},
		"tokenizer_config.json": map[string]any{"chat_template": template},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func loadModels(t *testing.T, name string, dir string) *prompt.Models {
	t.Helper()
	models := prompt.NewModels(prompt.ModelsOptions{})
	t.Cleanup(models.Close)
	models.Set([]prompt.Config{{Path: dir, Options: prompt.Options{Name: name, Aliases: []string{name + "-alias"}}}})
	if err := models.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m, _, _ := models.Lookup(name); m == nil || !m.HasTemplate() {
		t.Fatal("the model is not ready")
	}
	return models
}

// probed is an engine that renders chats with its own model.
type probed struct {
	*httptest.Server
	mu     sync.Mutex
	model  *prompt.Model
	status map[string]int // by path; 0: 200
	paths  []string
}

func newProbed(t *testing.T, template string, status map[string]int) *probed {
	t.Helper()
	m, err := prompt.Load(writeModel(t, template), prompt.Options{Name: "m"})
	if err != nil {
		t.Fatal(err)
	}
	p := &probed{model: m, status: status}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	return p
}

func (p *probed) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paths = append(p.paths, r.URL.Path)
	if s := p.status[r.URL.Path]; s != 0 {
		w.WriteHeader(s)
		return
	}
	text, _, err := p.model.Render(r.Context(), nil, body, prompt.KindChat)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	ids := []int{}
	for _, c := range text {
		ids = append(ids, int(c))
	}
	key := map[string]string{pathRender: "token_ids", "/v1/chat/completions": "prompt_token_ids", "/tokenize": "tokens"}[r.URL.Path]
	_ = json.NewEncoder(w).Encode(map[string]any{key: ids, "choices": []any{map[string]any{"token_ids": []int{1}}}})
}

// asked returns the paths requested since the last call.
func (p *probed) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.paths
	p.paths = nil
	return out
}

func (p *probed) use(t *testing.T, template string) {
	t.Helper()
	m, err := prompt.Load(writeModel(t, template), prompt.Options{Name: "m"})
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.model = m
}

func TestCompare(t *testing.T) {
	models := loadModels(t, "m", writeModel(t, plainTemplate))
	m, _, _ := models.Lookup("m")
	other := strings.Replace(plainTemplate, "<{{ m.role }}>", "«{{ m.role }}>", 1)
	none := map[string]int{pathRender: http.StatusForbidden}
	nothing := map[string]int{pathRender: 404, "/v1/chat/completions": 404, "/tokenize": 404}
	for _, c := range []struct {
		name, template string
		kind           endpoint.EngineType
		status         map[string]int
		busy           bool
		chat           int
		want           string
		paths          string
	}{
		{name: "equal", template: plainTemplate, want: "a chat is rendered there as it is here", paths: pathRender},
		{name: "other template", template: other, want: "a chat is rendered there otherwise than here from byte 0 on (30 bytes there, 29 here): there \"«user>Which leaves turn red?\\n\", here \"<user>Which leaves turn red?\\n\"", paths: pathRender + " " + pathRender},
		{name: "later byte", template: plainTemplate + "!", want: "a chat is rendered there otherwise than here from byte 29 on (30 bytes there, 29 here): there \">Which leaves turn red?\\n!\", here \">Which leaves turn red?\\n\"", paths: pathRender + " " + pathRender},
		{name: "generated", template: plainTemplate, kind: endpoint.EngineVLLM, status: none, want: "a chat is rendered there as it is here", paths: pathRender + " /v1/chat/completions"},
		{name: "busy", template: plainTemplate, kind: endpoint.EngineVLLM, status: none, busy: true, want: "error: " + ErrBusy.Error(), paths: pathRender},
		{name: "tokenized", template: plainTemplate, kind: endpoint.EngineSGLang, status: none, chat: 2, want: "a chat with tools is rendered there as it is here", paths: pathRender + " /tokenize"},
		{name: "unknown engines are not asked for tokens", template: plainTemplate, status: none, want: "a chat is rendered there as it is here", paths: pathRender + " /tokenize"},
		{name: "nor about tools", template: plainTemplate, status: none, chat: 2, want: "a chat with tools was not compared: the engine has no route that tells its prompts", paths: pathRender},
		{name: "no route", template: plainTemplate, kind: endpoint.EngineVLLM, status: nothing, want: "a chat was not compared: the engine has no route that tells its prompts", paths: pathRender + " /v1/chat/completions /tokenize"},
		{name: "refused", template: plainTemplate, status: map[string]int{pathRender: 400}, want: "a chat was not compared: the engine refuses it", paths: pathRender},
		{name: "sick", template: plainTemplate, status: map[string]int{pathRender: 503}, want: "error: remote: /v1/chat/completions/render is answered with status 503", paths: pathRender},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProbed(t, c.template, c.status)
			f, err := Compare(t.Context(), &Engine{URL: p.URL, Kind: c.kind, Busy: c.busy, Client: NewClient()}, m, "m", Chats[c.chat])
			got := f.String()
			if err != nil {
				got = "error: " + err.Error()
			}
			if got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
			if paths := strings.Join(p.asked(), " "); paths != c.paths {
				t.Errorf("asked %s, want %s", paths, c.paths)
			}
		})
	}
}

// TestCompareForeign: tokens that the vocabulary does not have are named.
func TestCompareForeign(t *testing.T) {
	models := loadModels(t, "m", writeModel(t, plainTemplate))
	m, _, _ := models.Lookup("m")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"token_ids":[60,70000]}`) }))
	defer s.Close()
	f, err := Compare(t.Context(), &Engine{URL: s.URL, Client: NewClient()}, m, "m", Chats[0])
	if want := "a chat holds the token 70000 there, which the vocabulary here does not have"; err != nil || f.String() != want {
		t.Errorf("%s, %v", f.String(), err)
	}
}

// pool lists endpoints at addresses of engines.
func pool(t *testing.T, urls ...string) *endpoint.Pool {
	t.Helper()
	p := endpoint.NewPool(endpoint.PoolOptions{})
	var specs []endpoint.Spec
	for i, u := range urls {
		specs = append(specs, endpoint.Spec{Name: fmt.Sprint("e", i), Addr: netip.MustParseAddrPort(strings.TrimPrefix(u, "http://")), Models: []string{"m-alias"}})
	}
	p.Set(specs)
	return p
}

// named returns the endpoint of a name.
func named(t *testing.T, p *endpoint.Pool, name string) *endpoint.Endpoint {
	t.Helper()
	for _, ep := range p.Snapshot().Endpoints {
		if ep.Name == name {
			return ep
		}
	}
	t.Fatalf("no endpoint %s", name)
	return nil
}

type told struct {
	endpoint string
	equal    []bool
}

func TestProber(t *testing.T) {
	models := loadModels(t, "m", writeModel(t, plainTemplate))
	good, bad := newProbed(t, plainTemplate, nil), newProbed(t, plainTemplate+"!", nil)
	engines := pool(t, good.URL, bad.URL)
	now := time.Unix(1000, 0)
	var heard []told
	p, err := NewProber(ProberOptions{
		Endpoints: func() []*endpoint.Endpoint { return engines.Snapshot().Endpoints }, Models: models, Now: func() time.Time { return now },
		Found: func(ep *endpoint.Endpoint, model string, found []Finding) {
			one := told{endpoint: ep.Name + " " + model}
			for _, f := range found {
				one.equal = append(one.equal, f.Equal)
			}
			heard = append(heard, one)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	steps := func(n int) (out []string) {
		heard = nil
		for range n {
			p.Step(context.Background())
		}
		for _, h := range heard {
			out = append(out, fmt.Sprint(h.endpoint, h.equal))
		}
		slices.Sort(out)
		return out
	}
	expect := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	expect("each engine once", steps(5), "e0 m[true true true]", "e1 m[false false false]")
	if f := p.Findings(named(t, engines, "e1").ID, "m"); len(f) != 3 || f[0].At != 29 {
		t.Errorf("findings: %+v", f)
	}
	good.asked()
	now = now.Add(61 * time.Second)
	expect("what differs is looked at again", steps(3), "e1 m[false false false]")
	bad.use(t, plainTemplate)
	now = now.Add(61 * time.Second)
	expect("and found mended", steps(3), "e1 m[true true true]")
	expect("then no more for a while", steps(3))
	if paths := good.asked(); len(paths) > 0 {
		t.Errorf("an engine that agrees was asked again: %s", paths)
	}
	bad.use(t, plainTemplate+"?")
	p.Recheck(named(t, engines, "e1"))
	expect("one that was just asked is not doubted", steps(3))
	now = now.Add(61 * time.Second)
	expect("but a minute later", steps(3), "e1 m[false false false]")
	bad.use(t, plainTemplate)
	good.use(t, plainTemplate+"?")
	now = now.Add(9 * time.Minute)
	expect("what agreed ten minutes ago is asked anew, though nothing shows that it changed", steps(3), "e0 m[false false false]", "e1 m[true true true]")
	good.use(t, plainTemplate)
	p.Reset([]*endpoint.Endpoint{named(t, engines, "e0")})
	if f := p.Findings(named(t, engines, "e0").ID, "m"); f != nil {
		t.Errorf("still known: %+v", f)
	}
	expect("another life is asked", steps(3), "e0 m[true true true]")
}

// TestProberFirst checks that one engine of each kind is queried before the others, and that a
// replica with another name starts with a different engine.
func TestProberFirst(t *testing.T) {
	models := loadModels(t, "m", writeModel(t, plainTemplate))
	var urls []string
	for range 4 {
		urls = append(urls, newProbed(t, plainTemplate, nil).URL)
	}
	engines := pool(t, urls...)
	for _, ep := range engines.Snapshot().Endpoints {
		kind := endpoint.EngineVLLM
		if ep.Name == "e3" {
			kind = endpoint.EngineSGLang
		}
		ep.SetGauges(endpoint.Gauges{Engine: kind, At: time.Now()})
	}
	starts := map[string]bool{}
	for name := range 20 {
		var order []string
		p, err := NewProber(ProberOptions{
			Name: fmt.Sprint("replica-", name), Endpoints: func() []*endpoint.Endpoint { return engines.Snapshot().Endpoints }, Models: models,
			Found: func(ep *endpoint.Endpoint, _ string, _ []Finding) { order = append(order, ep.Name) },
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			p.Step(t.Context())
		}
		if at := slices.Index(order, "e3"); len(order) != 4 || at > 1 {
			t.Errorf("replica %d asks %v: the other kind comes late", name, order)
		}
		starts[order[0]] = true
	}
	if len(starts) < 3 {
		t.Errorf("20 replicas begin with %v", starts)
	}
}

// TestProberFails checks that a failing engine is retried with increasing delays.
func TestProberFails(t *testing.T) {
	models := loadModels(t, "m", writeModel(t, plainTemplate))
	sick := newProbed(t, plainTemplate, map[string]int{pathRender: 500})
	engines := pool(t, sick.URL)
	now := time.Unix(1000, 0)
	found := 0
	p, err := NewProber(ProberOptions{
		Endpoints: func() []*endpoint.Endpoint { return engines.Snapshot().Endpoints }, Models: models, Now: func() time.Time { return now },
		Found: func(*endpoint.Endpoint, string, []Finding) { found++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for range 3600 {
		p.Step(t.Context())
		asked += len(sick.asked())
		now = now.Add(time.Second)
	}
	if found != 0 || asked < 10 || asked > 25 {
		t.Errorf("asked %d times in an hour, %d findings", asked, found)
	}
	sick.mu.Lock()
	sick.status = nil
	sick.mu.Unlock()
	now = now.Add(lastRetry)
	if p.Step(t.Context()); found != 1 {
		t.Error("not asked once it is well")
	}
}
