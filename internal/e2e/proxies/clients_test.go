//go:build proxies

package proxies

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/guide"
)

const (
	repository = "../../.."
	liteLLM    = "http://127.0.0.1:4000"
)

// simulated are the engines of the tutorial for laptops.
var simulated = []string{"http://127.0.0.1:8000", "http://127.0.0.1:8001"}

// TestClients runs the guides for clients with the installed programs, in front of the
// parts of the tutorial for laptops. Then it sends further requests through LiteLLM.
func TestClients(t *testing.T) {
	programs := testkit.Build(t, "grapevine", "grapevine-lab")
	installed := filepath.Join(parts.Cache(), "clients", "bin")
	if _, err := os.Stat(filepath.Join(installed, "litellm")); err != nil {
		t.Fatalf("%v: run `make test-proxies`", err)
	}
	run(t, filepath.Join(programs, "grapevine-lab"), "sim", "--engines", "2", "--port", "8000", "--served-model", "Qwen/Qwen3-8B", "--write-model", t.TempDir())
	testkit.Await(t, "the engines answer", func() bool { return reached(simulated[0]) && reached(simulated[1]) })
	t.Setenv("ENVOY", parts.Envoy(t))
	const envoy = "127.0.0.1:8079"
	run(t, filepath.Join(programs, "grapevine"), "up", "--listen", envoy, "--engine", simulated[0], "--engine", simulated[1])
	between := openWire(t, envoy)
	testkit.Await(t, "Envoy passes requests on", func() bool { return reached("http://" + clients) })

	dir := t.TempDir() // a checkout, as far as the guides need one
	for link, to := range map[string]string{"docs": filepath.Join(repository, "docs"), "build": programs} {
		to, err := filepath.Abs(to)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	// LiteLLM fetches a list of prices at its start unless it is told not to.
	env := []string{"PATH=" + installed + ":" + os.Getenv("PATH"), "LITELLM_LOCAL_MODEL_COST_MAP=True", "HOME=" + t.TempDir()}
	guide.Run(t, filepath.Join(repository, "docs/tasks/langchain.md"), dir, env...)
	guide.Run(t, filepath.Join(repository, "docs/tasks/litellm.md"), dir, env...)
	t.Run("whole", testLiteLLMWhole)
	t.Run("streamed", testLiteLLMStreamed)
	t.Run("errors", testLiteLLMErrors)
	t.Run("headers", func(t *testing.T) { testLiteLLMHeaders(t, between) })
}

// reached reports whether a server lists its models.
func reached(base string) bool {
	resp, err := http.Get(base + "/v1/models")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// chat sends a chat through LiteLLM; the caller closes the body.
func chat(t *testing.T, content, fields string, headers ...string) *http.Response {
	t.Helper()
	key, err := os.ReadFile("/tmp/litellm.key") // the guide writes it
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"model":"qwen3-8b","max_tokens":8,"messages":[{"role":"user","content":%q}]%s}`, content, fields)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, liteLLM+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+string(key))
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// usage is the part of an answer, or of a stream's last event, with the cached tokens.
type usage struct {
	Model string
	Usage struct {
		PromptTokensDetails struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

// testLiteLLMWhole: requests with a common prefix reach the engine that has it.
func testLiteLLMWhole(t *testing.T) {
	engines := map[string]bool{}
	prefix := strings.Repeat("a common instruction of many requests, ", 60)
	for i := range 6 {
		resp := chat(t, fmt.Sprint(prefix, i), "")
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		var u usage
		if err == nil {
			err = json.Unmarshal(body, &u)
		}
		if err != nil || resp.StatusCode != 200 || u.Model != "qwen3-8b" {
			t.Fatalf("%s %v: %s", resp.Status, err, body)
		}
		if cached := u.Usage.PromptTokensDetails.CachedTokens; i > 0 && cached < 300 {
			t.Errorf("request %d: %d cached tokens, want 300 or more", i, cached)
		}
		engines[resp.Header.Get("llm_provider-x-sim-engine")] = true
	}
	if len(engines) != 1 || engines[""] {
		t.Errorf("requests with one prefix were served by %v, want one engine", engines)
	}
}

// testLiteLLMStreamed: a stream passes in parts, and its last one reports the cached tokens.
func testLiteLLMStreamed(t *testing.T) {
	prompt := strings.Repeat("the prompt of a stream, ", 60)
	for i := range 2 {
		resp := chat(t, prompt, `,"stream":true,"stream_options":{"include_usage":true}`)
		events, last := 0, ""
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			if data, ok := strings.CutPrefix(in.Text(), "data: "); ok && data != "[DONE]" {
				events++
				last = data
			}
		}
		resp.Body.Close()
		var u usage
		if err := json.Unmarshal([]byte(last), &u); err != nil || resp.StatusCode != 200 || events < 3 {
			t.Fatalf("%s, %d events, last %s: %v", resp.Status, events, last, err)
		}
		if cached := u.Usage.PromptTokensDetails.CachedTokens; (cached > 300) != (i == 1) {
			t.Errorf("stream %d: %d cached tokens", i, cached)
		}
	}
}

// testLiteLLMErrors: clients get the engines' status at once, each request is sent once, and the next
// one succeeds.
func testLiteLLMErrors(t *testing.T) {
	for _, status := range []int{429, 503} {
		faulty := fmt.Sprintf("please fail with %d", status)
		for _, e := range simulated {
			setFaults(t, e, fmt.Sprintf(`{"error_share":1,"error_only":%q,"error_status":%d}`, faulty, status))
		}
		before := decisions(t)
		resp := chat(t, faulty, "")
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != status || !strings.Contains(string(body), "simulated fault") {
			t.Errorf("%s, want %d with the engine's text: %v %s", resp.Status, status, err, body)
		}
		if n := decisions(t) - before; n != 1 {
			t.Errorf("status %d: %v requests reached Grapevine, want 1", status, n)
		}
		resp = chat(t, "a request after a refused one", "")
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("after status %d the next request is answered with %s", status, resp.Status)
		}
		for _, e := range simulated {
			setFaults(t, e, `{}`)
		}
	}
}

// testLiteLLMHeaders: the headers that Grapevine reads are forwarded, with the model's own name and without
// the client's key. A trace context is not, as the guide states.
func testLiteLLMHeaders(t *testing.T, w *wire) {
	sent := map[string]string{
		"X-Request-Id": "through-litellm", "X-Session-Id": "session-7", "X-Gateway-Inference-Fairness-Id": "tenant-7",
		"X-Llm-D-Inference-Objective": "batch", "X-Slo-Ttft-Ms": "300",
	}
	list := []string{"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	for name, value := range sent {
		list = append(list, name, value)
	}
	resp := chat(t, "with headers", "", list...)
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	got, body := w.last()
	for name, value := range sent {
		if got.Get(name) != value {
			t.Errorf("%s: Grapevine gets %q, want %q", name, got.Get(name), value)
		}
	}
	if key := got.Get("Authorization"); key != "Bearer none" {
		t.Errorf("Authorization is %q, want the api_key of the configuration", key)
	}
	if got.Get("Traceparent") != "" {
		t.Error("LiteLLM forwards traceparent: correct the guide")
	}
	if !strings.Contains(body, `"Qwen/Qwen3-8B"`) {
		t.Errorf("the body does not name the engines' model: %s", body)
	}
}

// wire passes requests on to Envoy, and keeps the last one.
type wire struct {
	mu     sync.Mutex
	header http.Header
	body   string
}

// openWire listens at the address of the guides.
func openWire(t *testing.T, envoy string) *wire {
	t.Helper()
	w := &wire{}
	to := &url.URL{Scheme: "http", Host: envoy}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		body, err := io.ReadAll(r.In.Body)
		if err != nil {
			t.Error(err)
		}
		w.mu.Lock()
		w.header, w.body = r.In.Header.Clone(), string(body)
		w.mu.Unlock()
		r.Out.Body = io.NopCloser(strings.NewReader(string(body)))
		r.SetURL(to)
	}}
	l, err := net.Listen("tcp", clients)
	if err != nil {
		t.Fatal(err)
	}
	proxy.ErrorLog = log.New(io.Discard, "", 0) // until Envoy listens
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: proxy}}
	s.Start()
	t.Cleanup(s.Close)
	return w
}

func (w *wire) last() (header http.Header, body string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.header, w.body
}

// decisions returns the number of requests that the replica has decided on.
func decisions(t *testing.T) float64 { return sum(metrics(t), "grapevine_picker_decisions_total") }

func setFaults(t *testing.T, engine, faults string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, engine+"/sim/faults", strings.NewReader(faults))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
}
