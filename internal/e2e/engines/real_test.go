//go:build engines

package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

var requests = flag.Int("requests", 500, "requests to the real engines")

// tiny is a model for a CPU with random weights and a real tokenizer and template.
const (
	tiny       = "tiny"
	tinyConfig = `{"architectures":["Qwen2ForCausalLM"],"model_type":"qwen2","hidden_size":128,"intermediate_size":256,
"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"vocab_size":151936,"tie_word_embeddings":true,
"max_position_embeddings":32768,"rms_norm_eps":1e-6,"rope_theta":1000000.0,"hidden_act":"silu","torch_dtype":"bfloat16",
"bos_token_id":151643,"eos_token_id":151645}`
	tinyBlock      = 32 // block size of the CPU backend
	tinyVocabulary = 151936
)

// realEngine is a vLLM on the CPU behind a proxy that identifies its answers.
type realEngine struct {
	url            string
	events, replay int
	front          *httptest.Server

	start func() *process // kills the previous process
	runs  *process
}

// process is a started vLLM.
type process struct {
	cmd  *exec.Cmd
	log  string
	ends chan struct{} // closed when it has ended
}

func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ends
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports, release, err := parts.ReservePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return ports
}

// writeTiny writes the model's folder.
func writeTiny(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(tinyConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(part(t, "..", "..", "models", "qwen3", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// startEngine starts a vLLM that ends with the test. env returns additional environment variables
// for each attempt. It does not wait until the engine is ready.
func startEngine(t *testing.T, model string, args []string, env func() []string) *realEngine {
	t.Helper()
	e := &realEngine{}
	e.start = func() *process {
		ports := freePorts(t, 3)
		e.url, e.events, e.replay = fmt.Sprint("http://127.0.0.1:", ports[0]), ports[1], ports[2]
		kv := fmt.Sprintf(`{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:%d","replay_endpoint":"tcp://*:%d","topic":"kv-events"}`, e.events, e.replay)
		cmd := exec.Command(part(t, "venv", "bin", "vllm"), append([]string{"serve", model, "--host", "127.0.0.1", "--port", fmt.Sprint(ports[0]), "--served-model-name", tiny,
			"--max-model-len", "8192", "--block-size", fmt.Sprint(tinyBlock), "--enforce-eager",
			"--max-num-seqs", "8", "--disable-uvicorn-access-log", "--enable-prefix-caching", "--enable-prompt-tokens-details", "--kv-events-config", kv}, args...)...)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "VLLM_CPU_KVCACHE_SPACE=1",
			"VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES=", "VLLM_HOST_IP=127.0.0.1", "GLOO_SOCKET_IFNAME=lo")
		if env != nil {
			cmd.Env = append(cmd.Env, env()...)
		}
		log, err := os.Create(filepath.Join(t.TempDir(), "vllm.log"))
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p := &process{cmd: cmd, log: log.Name(), ends: make(chan struct{})}
		go func() {
			_ = cmd.Wait()
			close(p.ends)
		}()
		return p
	}
	e.runs = e.start()
	t.Cleanup(func() {
		e.runs.kill()
		if t.Failed() {
			t.Logf("log of the engine at %s:\n%s", e.url, e.runs.tail())
		}
	})
	// The engine closes connections after five idle seconds, sometimes while a request is being
	// sent.
	transport := &http.Transport{IdleConnTimeout: time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	e.front = httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			to, err := url.Parse(e.url)
			if err != nil {
				panic(err)
			}
			r.SetURL(to)
			r.SetXForwarded()
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set("x-engine", e.front.Listener.Addr().String())
			return nil
		},
	})
	t.Cleanup(e.front.Close)
	return e
}

// tail returns the end of the log.
func (p *process) tail() string {
	text, _ := os.ReadFile(p.log)
	return tail(string(text))
}

// ready waits until the engine serves. An engine that ends or hangs earlier is started a second
// time, because vLLM takes further ports that the test cannot reserve.
func (e *realEngine) ready(t *testing.T) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	serves := func() bool {
		resp, err := client.Get(e.url + "/health")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	for range 2 {
		if e.comes(serves) {
			return
		}
		e.runs.kill()
		t.Logf("the engine at %s did not start; its log:\n%s", e.url, e.runs.tail())
		e.runs = e.start()
	}
	if !e.comes(serves) {
		t.Fatalf("the engine at %s does not start", e.url)
	}
}

// startsWithin is the timeout of a start: three times the duration of two simultaneous starts on
// two busy CPUs.
const startsWithin = 4 * time.Minute

// comes waits for a condition while the engine runs, up to startsWithin.
func (e *realEngine) comes(ok func() bool) bool {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(startsWithin); !ok(); {
		select {
		case <-tick.C:
		case <-e.runs.ends:
			return false
		case <-deadline:
			return false
		}
	}
	return true
}

// errorsOnly counts the errors that a replica logs.
type errorsOnly struct{ n atomic.Int64 }

func (e *errorsOnly) Write(p []byte) (int, error) {
	e.n.Add(1)
	return len(p), nil
}

// realRig is a set of engines, a replica and an Envoy.
type realRig struct {
	t     *testing.T
	model string
	fleet []*realEngine
	s     *server.Server
	url   string
}

func openReal(t *testing.T, n int) *realRig {
	r := &realRig{t: t, model: writeTiny(t)}
	for range n {
		r.fleet = append(r.fleet, startEngine(t, r.model, []string{"--load-format", "dummy", "--dtype", "bfloat16", "--enable-scale-out", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"}, nil))
	}
	var list []fleet.Endpoint
	var addrs []string
	for i, e := range r.fleet {
		e.ready(t)
		at := e.front.Listener.Addr().(*net.TCPAddr)
		list = append(list, fleet.Endpoint{
			Name: fmt.Sprint("engine-", i), Namespace: "default", Address: "127.0.0.1", Port: at.Port, Model: tiny,
			Events: &fleet.EndpointEvents{Port: e.events, ReplayPort: e.replay, Topic: "kv-events"},
		})
		addrs = append(addrs, at.String())
	}
	r.open(list, "", addrs)
	return r
}

// open starts the replica with a configuration, and an Envoy for addrs.
func (r *realRig) open(list []fleet.Endpoint, config string, addrs []string) {
	t := r.t
	b, err := yaml.Marshal(map[string]any{"endpoints": list})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r.s, err = server.Open(server.Options{
		Name: "replica", ConfigText: config, Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Endpoints: file, Speculate: time.Nanosecond,
		Models: []server.ModelOptions{{Name: tiny, Path: r.model}}, AllowModeOverride: true, Linger: -1,
		Log: slog.New(slog.NewTextHandler(&errorsOnly{}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.s.Stop(context.Background()) })
	testkit.Await(t, "the replica is ready", func() bool { return r.s.Status().State == "ready" })
	conf, err := envoyconf.Render(envoyconf.Params{
		MessageTimeout: 30 * time.Second, NetworkTimeout: testkit.NetworkTimeout, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", ExtProc: []string{r.s.ExtProcAddr().String()}, Endpoints: addrs,
	})
	if err != nil {
		t.Fatal(err)
	}
	envoy := testkit.StartEnvoy(t, conf)
	r.url = "http://" + envoy.Addr("inference")
}

// post sends a body and decodes the answer into out.
func (r *realRig) post(to string, body []byte, out any) http.Header {
	r.t.Helper()
	resp, err := http.Post(to, "application/json", bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %d %v %.300s", to, resp.StatusCode, err, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		r.t.Fatalf("%s: %v: %.300s", to, err, text)
	}
	return resp.Header
}

// predicted returns the predicted cached tokens of a prompt for each endpoint.
func (r *realRig) predicted(path string, body []byte) (out map[string]int, states map[string]string) {
	r.t.Helper()
	var e server.Explained
	r.post("http://"+r.s.AdminAddr().String()+"/debug/explain?path="+url.QueryEscape(path), body, &e)
	out = map[string]int{}
	for _, c := range e.Candidates {
		for _, n := range c.Matched {
			out[c.Endpoint] += n
		}
	}
	return out, e.Knowledge
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type answer struct {
	Choices []struct {
		Message message
		Text    string
	}
	Usage struct {
		Prompt  int `json:"prompt_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

// TestRealEngines runs two complete vLLMs, a replica and a real Envoy.
func TestRealEngines(t *testing.T) {
	began := time.Now()
	r := openReal(t, 2)
	t.Logf("two engines, a replica and Envoy serve after %.0f s", time.Since(began).Seconds())
	t.Run("Rendering", func(t *testing.T) { r.t = t; r.rendering(t) })
	t.Run("Live", func(t *testing.T) { r.t = t; r.live(t) })
	t.Run("Chats", func(t *testing.T) { r.t = t; r.chats(t) })
}

// chats compares predictions for multi-turn prompts with the cache hits that the engines report.
func (r *realRig) chats(t *testing.T) {
	began := time.Now()
	rng := rand.New(rand.NewPCG(15, 2))
	words := strings.Fields("the grape vine grows over an old wall and its leaves turn red while λόγος 文字 рѣка día naïve — 42 3.14 {json: [1, 2]} end\n")
	say := func(n int) string {
		var s []string
		for range n {
			s = append(s, words[rng.IntN(len(words))]+strconv.Itoa(rng.IntN(30)))
		}
		return strings.Join(s, " ")
	}
	systems := []string{say(120), say(200), say(60)}
	var open [][]message
	counts, known, byEngine, spaces := tally{name: "real"}, tally{name: "known"}, map[string]int{}, map[string]int{}
	var reported, prompts int
	for i := range *requests {
		var chat []message
		switch {
		case len(open) > 0 && rng.IntN(10) < 7:
			chat = open[rng.IntN(len(open))]
		default:
			chat = []message{{"system", systems[rng.IntN(len(systems))]}}
		}
		chat = append(chat[:len(chat):len(chat)], message{"user", say(5 + rng.IntN(40))})
		path, body := "/v1/chat/completions", map[string]any{"model": tiny, "max_tokens": 4 + rng.IntN(40), "temperature": 1, "seed": i, "messages": chat}
		if i%10 == 9 {
			path, body = "/v1/completions", map[string]any{"model": tiny, "max_tokens": 4, "prompt": systems[rng.IntN(len(systems))] + say(20)}
		}
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		want, states := r.predicted(path, text)
		var a answer
		to := r.url
		if i%4 == 3 { // sent past the picker, so that both engines are in use
			to = r.fleet[i/4%2].front.URL
		}
		engine := r.post(to+path, text, &a).Get("x-engine")
		byEngine[engine]++
		spaces[states[engine]]++
		full := (a.Usage.Prompt - 1) / tinyBlock * tinyBlock
		predicted := min(want[engine], full)
		counts.compare(predicted, a.Usage.Details.Cached, a.Usage.Prompt, tinyBlock)
		if states[engine] == "exact" { // in other states, sent prompts count too, which is an estimate
			known.compare(predicted, a.Usage.Details.Cached, a.Usage.Prompt, tinyBlock)
		}
		// Events arrive independently of the answer. Wait until they have arrived before the next
		// comparison.
		testkit.Eventually(t, func() string {
			if know, _ := r.predicted(path, text); know[engine] < full {
				return fmt.Sprintf("prompt %d: of %d tokens that %s has computed %d are known", i, full, engine, know[engine])
			}
			return ""
		})
		reported, prompts = reported+a.Usage.Details.Cached, prompts+a.Usage.Prompt
		if path == "/v1/chat/completions" && a.Usage.Prompt < 5000 {
			if open = append(open, append(chat, a.Choices[0].Message)); len(open) > 30 {
				open = open[1:]
			}
		}
	}
	t.Logf("\n| engine | requests | with a hit | exact | while the state was exact | over (most tokens) | under | prompt tokens | cached |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n| vLLM 0.32 on the CPU ×2 | %d | %d | %.1f%% | %d of %d | %d (%d) | %d | %d | %.1f%% |",
		counts.total, counts.there, 100*float64(counts.exact())/float64(counts.total), known.exact(), known.total, counts.over, counts.most, counts.under, prompts, 100*float64(reported)/float64(prompts))
	t.Logf("%.0f s; by engine %v; states %v; first difference: %s", time.Since(began).Seconds(), byEngine, spaces, counts.first)
	if known.exact() != known.total || known.total*2 < counts.total || counts.exact()*100 < counts.total*97 || counts.there*2 < counts.total || len(byEngine) != 2 {
		t.Errorf("predictions are not what the engines report: %d of %d exact (known: %d of %d), %d engines; %s", counts.exact(), counts.total, known.exact(), known.total, len(byEngine), counts.first)
	}
}
