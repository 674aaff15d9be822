package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/endpoint/saved"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// apart returns the configuration of docs/pd.md that splits long prompts.
func apart(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(page), "```yaml\n") {
		if text, _, _ := strings.Cut(part, "```"); strings.Contains(text, "type: disagg-profile-handler") {
			return text
		}
	}
	t.Fatal("docs/configuration.md has no example of prefill and decode")
	return ""
}

// echo configures Envoy to return the headers that it sent to the engine.
func echo(p *envoyconf.Params) {
	for _, name := range []string{request.HeaderPrefiller, request.HeaderEncoders} {
		p.ResponseHeaders = append(p.ResponseHeaders, fmt.Sprintf("sent-%s=%%REQ(%s)%%", name, name))
	}
}

// label rewrites the endpoints file with the engines' roles in order, and waits until it is read.
func (r *rig) label(roles ...string) {
	r.t.Helper()
	list := r.fleet.Endpoints()
	for i, role := range roles {
		list[i].Labels[endpoint.LabelRole] = role
	}
	r.write(list)
	testkit.Await(r.t, "the roles are read", func() bool {
		st := r.servers[0].Status()
		read := st.State == "ready" || strings.HasPrefix(st.Reason, "no endpoint decodes")
		for _, e := range st.Endpoints {
			i := slices.IndexFunc(list, func(l fleet.Endpoint) bool { return l.Name == e.Name })
			read = read && e.Facts.Labels[endpoint.LabelRole] == roles[i]
		}
		return read
	})
}

// write replaces the endpoints file.
func (r *rig) write(list []fleet.Endpoint) {
	r.t.Helper()
	raw, err := yaml.Marshal(map[string]any{"endpoints": list})
	if err != nil {
		r.t.Fatal(err)
	}
	next := filepath.Join(r.dir, "next.yaml")
	if err := os.WriteFile(next, raw, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(next, r.list); err != nil {
		r.t.Fatal(err)
	}
}

// reply is a client's view of an answer.
type reply struct {
	status            int
	engine            string
	prefill, encoders string // headers that Envoy sent to the engine
}

// stream posts a prompt with additional headers as name, value pairs, and reads the streamed
// answer.
func (r *rig) stream(prompt string, more ...string) (out reply) {
	r.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"stream":true,"prompt":%q,"max_tokens":12}`, vocab.Name, prompt)
	req, err := http.NewRequest(http.MethodPost, r.client.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return out
	}
	for i := 0; i+1 < len(more); i += 2 {
		req.Header.Set(more[i], more[i+1])
	}
	resp, err := r.client.HTTP.Do(req)
	if err != nil {
		r.t.Error(err)
		return out
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
	}
	h := resp.Header
	return reply{resp.StatusCode, h.Get(sim.HeaderEngine), h.Get("sent-" + request.HeaderPrefiller), h.Get("sent-" + request.HeaderEncoders)}
}

// long returns a prompt of several thousand tokens that is unique per name.
func long(name string) string { return strings.Repeat(name+" went to the market and came back. ", 300) }

// load returns the load that the first replica counts at an engine.
func (r *rig) load(engine string) saved.LoadFacts {
	for _, e := range r.servers[0].Status().Endpoints {
		if e.Name == engine {
			return e.Facts.Load
		}
	}
	r.t.Fatalf("no engine %s", engine)
	return saved.LoadFacts{}
}

// TestPrefillApart checks that a long prompt is sent to a decode endpoint with the header that
// names prefill endpoints, and that both count in the load. A cached prompt is not split.
func TestPrefillApart(t *testing.T) {
	for _, kind := range []envoyconf.Kind{envoyconf.Resilient, envoyconf.Gateway} {
		t.Run(string(kind), func(t *testing.T) {
			r := open(t, rigOptions{kind: kind, server: config(t, apart(t)), params: echo})
			r.label("decode", "decode", "prefill", "prefill")
			addr := r.addrs()
			prefillers := map[string]bool{addr[2] + "," + addr[3]: true, addr[3] + "," + addr[2]: true}

			got := r.stream(long("ann"), request.HeaderEncoders, "10.6.6.6:80")
			if got.status != http.StatusOK || !prefillers[got.prefill] || got.encoders != "" || got.engine != "engine-0" && got.engine != "engine-1" {
				t.Errorf("a long prompt: %+v", got)
			}
			again := r.stream(long("ann"), request.HeaderPrefiller, "10.6.6.6:80")
			if again.status != http.StatusOK || again.prefill != "" || again.engine != got.engine {
				t.Errorf("the same prompt again: %+v, the first time %+v", again, got)
			}
			if short := r.stream("hello"); short.status != http.StatusOK || short.prefill != "" {
				t.Errorf("a short prompt: %+v", short)
			}
			r.settle()
			r.bookWhileHanging(t)
			r.settle()
			// Without a sidecar, no answer reports where the prompt was computed, and none is
			// counted as split.
			if n := r.metric(0, `grapevine_picker_prompts_computed_total{by="unreported"}`); n != 3 {
				t.Errorf("of 3 requests with a prefill endpoint and no sidecar %v are unreported", n)
			}
			r.clean()
		})
	}
}

// bookWhileHanging checks the load while two long prompts are running.
func (r *rig) bookWhileHanging(t *testing.T) {
	t.Helper()
	for _, e := range r.fleet.Engines() {
		e.Hang(faults.HangEngine)
	}
	var wg sync.WaitGroup
	for _, name := range []string{"bob", "cid"} {
		wg.Go(func() {
			if got := r.stream(long(name)); got.status != http.StatusOK || got.prefill == "" {
				t.Errorf("%s: %+v", name, got)
			}
		})
	}
	sum := func(engines ...string) (l saved.LoadFacts) {
		for _, name := range engines {
			e := r.load(name)
			l.Requests += e.Requests
			l.PrefillTokens += e.PrefillTokens
			l.Tokens += e.Tokens
		}
		return l
	}
	testkit.Await(t, "two requests at decode endpoints", func() bool { return sum("engine-0", "engine-1").Requests == 2 })
	decode, prefill := sum("engine-0", "engine-1"), sum("engine-2", "engine-3")
	if decode.PrefillTokens != 0 || prefill.Requests != 2 || prefill.PrefillTokens < 2000 || prefill.Tokens != decode.Tokens {
		t.Errorf("decode endpoints have %+v, prefill endpoints %+v", decode, prefill)
	}
	for _, e := range r.fleet.Engines() {
		e.Hang(faults.HangNone)
	}
	wg.Wait()
}

// TestRolesWithoutConfiguration checks that endpoints with the role prefill get no requests without
// a configuration.
func TestRolesWithoutConfiguration(t *testing.T) {
	r := open(t, rigOptions{params: echo})
	r.label("prefill", "decode", "prefill", "both")
	for i := range 12 {
		if got := r.stream(long(fmt.Sprint("dan", i))); got.status != http.StatusOK || got.prefill != "" || got.engine != "engine-1" && got.engine != "engine-3" {
			t.Errorf("request %d: %+v", i, got)
		}
	}
	r.settle()
	r.clean()
	r.label("prefill", "prefill", "prefill", "encode")
	if got := r.stream("hello"); got.status != http.StatusServiceUnavailable {
		t.Errorf("without an engine: %+v, want 503", got)
	}
}

// swapped reads the gauge of waiting requests as running ones, and vice versa, from engines with a
// separate label.
const swapped = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: queue-scorer}
- type: core-metrics-extractor
  parameters:
    engineConfigs:
    - {name: odd, queuedRequestsSpec: "vllm:num_requests_running", runningRequestsSpec: "vllm:num_requests_waiting"}
`

// TestEngineDialect checks that a metrics page is read by the names configured for its engine
// label.
func TestEngineDialect(t *testing.T) {
	r := open(t, rigOptions{engines: 2, server: config(t, swapped)})
	list := r.fleet.Endpoints()
	list[1].Labels[endpoint.LabelEngine] = "odd"
	r.write(list)
	for _, e := range r.fleet.Engines() {
		e.Hang(faults.HangEngine)
	}
	var wg sync.WaitGroup
	for range 16 { // never all at one engine
		wg.Go(func() { r.stream("hello") })
	}
	testkit.Await(t, "both pages are read", func() bool {
		seen := map[string]string{}
		for _, e := range r.servers[0].Status().Endpoints {
			seen[e.Name] = fmt.Sprint(e.Waiting > 0, e.Running > 0)
		}
		return seen["engine-0"] == "true false" && seen["engine-1"] == "false true"
	})
	for _, e := range r.fleet.Engines() {
		e.Hang(faults.HangNone)
	}
	wg.Wait()
	r.settle()
}
