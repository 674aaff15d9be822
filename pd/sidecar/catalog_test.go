package sidecar

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

var rewriteCatalog = flag.Bool("rewrite", false, "write the catalogue of docs/conformance.md anew")

const (
	catalogPage = "../../docs/conformance.md"
	catalogFrom = "<!-- catalogue: written by go test ./pd/sidecar -run TestCatalog -rewrite -->\n"
	catalogTo   = "<!-- end of catalogue -->\n"
)

// Addresses of the catalogue's engines.
const (
	first, second = "10.0.1.5:8000", "10.0.1.6:8000"
	decodeEngine  = "127.0.0.1:8200"
)

// stage has the engines around a sidecar. It answers by host, and records the requests.
type stage struct {
	mu      sync.Mutex
	answers map[string]*http.Response // by host; default: a sound answer
	refuses map[string]bool
	legs    map[string][]legSeen
}

type legSeen struct {
	path, body string
	header     http.Header
}

// RoundTrip implements http.RoundTripper.
func (s *stage) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses[r.URL.Host] {
		return nil, &netError{syscall.ECONNREFUSED}
	}
	if r.URL.Path == "/health" || r.URL.Path == "/metrics" {
		return said("", ""), nil
	}
	text := ""
	if r.Body != nil {
		all, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		text = string(all)
	}
	s.legs[r.URL.Host] = append(s.legs[r.URL.Host], legSeen{r.URL.Path, text, r.Header.Clone()})
	if a := s.answers[r.URL.Host]; a != nil {
		return a, nil
	}
	if r.URL.Host == decodeEngine {
		return said(`{"choices":[{"message":{"content":"x"}}]}`, "application/json"), nil
	}
	return said(soundPrefill, "application/json"), nil
}

type netError struct{ error }

func (e *netError) Unwrap() error { return e.error }

// played is the outcome of one request.
type played struct {
	status          int
	body            string
	prefill, decode []legSeen // of the first prefill engine, and of the decode engine
	other           int       // legs of the second prefill engine
}

// catalogCase is a situation in which the behaviour of llm-d's routing sidecar is known.
type catalogCase struct {
	situation string
	peer      string // what llm-d's sidecar does
	ours      string // "": the same
	reason    string // of a difference

	path, body string            // default: a chat
	header     map[string]string // default: first in the prefill header
	options    func(*Options)
	engines    func(*stage)
	check      func(p *played) bool
}

const chatOfTwo = `{"zeta":12345678901234567890,"alpha":1,"messages":[{"role":"user","content":"x"}],"max_tokens":50,"stream":false}`

func status(code int) func(*played) bool { return func(p *played) bool { return p.status == code } }

// whole reports whether decode alone served a request with status 200.
func whole(p *played) bool { return p.status == 200 && len(p.decode) == 1 && len(p.prefill) == 0 }

// local reports whether decode computed the prompt after prefill had been asked.
func local(p *played) bool {
	return p.status == 200 && len(p.prefill) > 0 && len(p.decode) == 1 && !strings.Contains(p.decode[0].body, keyKVTransfer)
}

func saysOnce(host string, code int, body string) func(*stage) {
	return func(s *stage) {
		r := said(body, "application/json")
		r.StatusCode = code
		s.answers[host] = r
	}
}

var catalog = []catalogCase{
	{situation: "no `x-prefiller-host-port`", peer: "forwards the request to decode, re-encoded", ours: "forwards it byte for byte", reason: "re-encoding reorders members and rounds large integers",
		header: map[string]string{}, check: func(p *played) bool { return whole(p) && p.decode[0].body == chatOfTwo }},
	{situation: "a prefill endpoint", peer: "prefill gets all three limits as 1 and `stream: false`, decode gets the client's values back",
		check: func(p *played) bool {
			return p.status == 200 && len(p.prefill) == 1 && strings.Contains(p.prefill[0].body, `"min_tokens":1`) && strings.Contains(p.prefill[0].body, `"max_tokens":1`) && strings.Contains(p.prefill[0].body, `"max_completion_tokens":1`) &&
				strings.Contains(p.decode[0].body, `"max_tokens":50`) && !strings.Contains(p.decode[0].body, "min_tokens")
		}},
	{situation: "the transfer object of prefill's answer", peer: "decoded and encoded again", ours: "reaches decode byte for byte", reason: "it has long integers and a clock",
		engines: saysOnce(first, 200, `{"kv_transfer_params":{"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600,"clock":12345678901234567890.125}}`),
		check: func(p *played) bool {
			return strings.Contains(p.decode[0].body, `"clock":12345678901234567890.125`)
		}},
	{situation: "order of members and integers above 2⁵³ in the body", peer: "alphabetical order; digits are lost", ours: "kept", reason: "engines hash and log what the client sent",
		check: func(p *played) bool {
			return strings.HasPrefix(p.decode[0].body, `{"zeta":12345678901234567890,"alpha":1,`)
		}},
	{situation: "a list of prefill endpoints, with spaces and `http://`", peer: "uses the first",
		header: map[string]string{"X-Prefiller-Host-Port": " http://" + first + " , " + second}, check: func(p *played) bool { return len(p.prefill) == 1 && p.other == 0 }},
	{situation: "headers of the picker", peer: "removed before the engines",
		check: func(p *played) bool {
			return p.prefill[0].header.Get("X-Prefiller-Host-Port") == "" && p.decode[0].header.Get("X-Prefiller-Host-Port") == ""
		}},
	{situation: "the client's `Authorization`", peer: "on both legs",
		header: map[string]string{"X-Prefiller-Host-Port": first, "Authorization": "Bearer k"},
		check: func(p *played) bool {
			return p.prefill[0].header.Get("Authorization") == "Bearer k" && p.decode[0].header.Get("Authorization") == "Bearer k"
		}},
	{situation: "no `x-request-id`", peer: "adds one to both legs",
		check: func(p *played) bool {
			id := p.prefill[0].header.Get("X-Request-Id")
			return id != "" && id == p.decode[0].header.Get("X-Request-Id")
		}},
	{situation: "the client's `x-request-id`", peer: "adds a second line", ours: "keeps the one line", reason: "engines read the first line only",
		header: map[string]string{"X-Prefiller-Host-Port": first, "X-Request-Id": "client-7"},
		check: func(p *played) bool {
			return slices.Equal(p.prefill[0].header["X-Request-Id"], []string{"client-7"})
		}},
	{situation: "embeddings", peer: "forwards to decode, unchanged", path: "/v1/embeddings", body: `{"input":"x"}`,
		check: func(p *played) bool { return whole(p) && p.decode[0].body == `{"input":"x"}` }},
	{situation: "`n` above 1, or a list of prompts", peer: "splits", ours: "decode serves the whole request", reason: "a transfer holds the blocks of one prompt",
		body: `{"messages":[],"n":2}`, check: whole},
	{situation: "a body that is not JSON", peer: "400", body: "{", check: status(400)},
	{situation: "a body above 64 MiB", peer: "no limit", ours: "413 (`--max-body`)", reason: "memory is bounded",
		options: func(o *Options) { o.MaxBody = 10 }, check: status(413)},
	{situation: "prefill answers 4xx", peer: "the client gets this answer", ours: "decode answers", reason: "decode rejects a bad request by itself, and the reason may be prefill's own",
		engines: saysOnce(first, 400, `{"error":{}}`), check: local},
	{situation: "prefill answers 5xx and lives", peer: "the client gets this answer", ours: "decode computes the prompt", reason: "the request can be served",
		options: func(o *Options) { o.DeathWait = 1 }, engines: saysOnce(first, 502, `{}`), check: local},
	{situation: "prefill answers 503", peer: "the client gets it, or a retry with `--prefill-max-retries`", ours: "the next prefill endpoint, then decode", reason: "the request can be served",
		header: map[string]string{"X-Prefiller-Host-Port": first + "," + second}, engines: saysOnce(first, 503, `{}`),
		check: func(p *played) bool {
			return p.status == 200 && len(p.prefill) == 1 && p.other == 1 && len(p.decode) == 1
		}},
	{situation: "prefill refuses connections", peer: "503", ours: "decode computes the prompt", reason: "the request can be served",
		engines: func(s *stage) { s.refuses[first] = true },
		check:   func(p *played) bool { return p.status == 200 && len(p.decode) == 1 }},
	{situation: "prefill answers 200 without JSON", peer: "400", ours: "decode computes the prompt", reason: "the client did nothing wrong",
		engines: saysOnce(first, 200, `<html>`), check: local},
	{situation: "prefill answers without a transfer object", peer: "decode gets `null`", ours: "decode gets the client's body; counted and logged", reason: "operators see that the pair does not work",
		engines: saysOnce(first, 200, `{"kv_transfer_params":null}`), check: local},
	{situation: "a transfer object that would crash decode", peer: "forwards it", ours: "decode computes the prompt", reason: "an assertion ends vLLM's engine",
		engines: saysOnce(first, 200, `{"kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":[],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}}`), check: local},
	{situation: "decode refuses connections", peer: "503", header: map[string]string{},
		engines: func(s *stage) { s.refuses[decodeEngine] = true }, check: status(503)},
	{situation: "the client's own `kv_transfer_params`", peer: "replaced in split requests, forwarded in others", ours: "removed from all", reason: "it can read another tenant's cache, or crash the engine",
		header: map[string]string{}, body: `{"messages":[],"kv_transfer_params":{"do_remote_prefill":true}}`,
		check: func(p *played) bool { return whole(p) && !strings.Contains(p.decode[0].body, "do_remote_prefill") }},
	{situation: "a duplicate `kv_transfer_params`", peer: "the last one counts", ours: "400", reason: "parsers disagree on which one counts",
		body: `{"messages":[],"kv_transfer_params":{},"kv_transfer_params":{}}`, check: status(400)},
	{situation: "a prefill endpoint that is not on the list", peer: "403", ours: "decode computes the prompt; 403 with `--no-fallback`", reason: "the request can be served; the refusal is counted and logged",
		options: func(o *Options) { o.Targets = Listed{second: AnyRole} }, check: whole},
	{situation: "a listed host with another port", peer: "allowed", ours: "not allowed", reason: "another port is another server",
		options: func(o *Options) { o.Targets = Listed{"10.0.1.5:9999": AnyRole} }, check: whole},
	{situation: "one of two endpoints not on the list", peer: "403 if it is the first", ours: "left out", reason: "the other one can serve the request",
		header:  map[string]string{"X-Prefiller-Host-Port": second + "," + first},
		options: func(o *Options) { o.Targets = Listed{first: AnyRole} },
		check:   func(p *played) bool { return p.status == 200 && len(p.prefill) == 1 && p.other == 0 }},
	{situation: "`GET /v1/models`", peer: "forwards to decode", path: "GET /v1/models", check: whole},
}

// TestCatalog plays the known situations of llm-d's routing sidecar. Each behaves as the catalogue
// says, and the page lists each with the reason of a difference.
func TestCatalog(t *testing.T) {
	var table strings.Builder
	fmt.Fprintf(&table, "| situation | llm-d's sidecar | `grapevine sidecar` | reason |\n|---|---|---|---|\n")
	for i := range catalog {
		c := &catalog[i]
		if p := playCatalog(t, c); !c.check(p) {
			t.Errorf("%s: %+v", c.situation, *p)
		}
		if (c.ours == "") != (c.reason == "") {
			t.Errorf("%s: a difference needs a reason", c.situation)
		}
		ours := c.ours
		if ours == "" {
			ours = "the same"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", c.situation, c.peer, ours, c.reason)
	}
	page, err := os.ReadFile(catalogPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), catalogFrom)
	_, after, closed := strings.Cut(rest, catalogTo)
	if !found || !closed {
		t.Fatalf("%s has no marks around the catalogue", catalogPage)
	}
	want := before + catalogFrom + "\n" + table.String() + "\n" + catalogTo + after
	if *rewriteCatalog {
		if err := os.WriteFile(catalogPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Errorf("%s does not have the catalogue: go test ./pd/sidecar -run TestCatalog -rewrite", catalogPage)
	}
}

func playCatalog(t *testing.T, c *catalogCase) *played {
	t.Helper()
	s := &stage{answers: map[string]*http.Response{}, refuses: map[string]bool{}, legs: map[string][]legSeen{}}
	if c.engines != nil {
		c.engines(s)
	}
	o := Options{Engine: "http://" + decodeEngine, Transport: s, DeathWait: testkit.HangTimeout, KVTransfer: kvtransfer.Policy{Action: kvtransfer.Strip}}
	if c.options != nil {
		c.options(&o)
	}
	server, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	method, path, body := http.MethodPost, c.path, c.body
	if path == "" {
		path = "/v1/chat/completions"
	}
	if get, found := strings.CutPrefix(path, "GET "); found {
		method, path = http.MethodGet, get
	} else if body == "" {
		body = chatOfTwo
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	header := c.header
	if header == nil {
		header = map[string]string{"X-Prefiller-Host-Port": first}
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return &played{w.Code, w.Body.String(), s.legs[first], s.legs[decodeEngine], len(s.legs[second])}
}
