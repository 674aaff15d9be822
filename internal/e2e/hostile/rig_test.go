//go:build hostile

package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// poison is a model whose template works without end.
const poison = "poison"

// rig is what is attacked, and what honest requests go through.
type rig struct {
	t       *testing.T
	program string
	dir     string
	fleet   *sim.Fleet
	stirred int // times that the list of endpoints was changed
	pick    string
	liar    *liar
	canary  *canary
	cage    *cage
	envoy   *testkit.Envoy
	url     string
}

// liar is an engine that serves requests and says what it likes of its streams.
type liar struct {
	*httptest.Server
	says     sync.Map     // func(http.ResponseWriter) by the end of a path
	smuggled atomic.Int64 // requests with headers that only pickers may set
}

// canary is a host that nobody may be led to.
type canary struct {
	*httptest.Server
	asked atomic.Int64
}

func openRig(t *testing.T) *rig {
	r := &rig{t: t, dir: t.TempDir(), canary: &canary{}, liar: &liar{}}
	r.program = filepath.Join(testkit.Build(t, "grapevine"), "grapevine")
	r.canary.Server = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { r.canary.asked.Add(1) }))
	t.Cleanup(r.canary.Close)
	var err error
	if r.fleet, err = sim.OpenFleet(sim.FleetOptions{Engines: 3, Engine: sim.Options{
		Speed: 1e6, Events: &sim.EventOptions{},
		MaxBody: 1 << 20, // they share the machine with what is attacked: reading 8 MB of values would be their time, not its
	}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.fleet.Close() })
	r.openLiar()
	list := r.writeEndpoints(r.addr(r.liar.URL))
	model, bad := filepath.Join(r.dir, "model"), filepath.Join(r.dir, poison)
	for _, dir := range []string{model, bad} {
		if err := vocab.New().WriteModel(dir); err != nil {
			t.Fatal(err)
		}
	}
	template := `{% set l = messages[0].content.split(' ') %}{% for i in range(99999) %}{% for j in range(99999) %}{% set z = l[::-1] + l %}{% endfor %}{% endfor %}`
	if err := os.WriteFile(filepath.Join(bad, "chat_template.jinja"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	r.pick = parts.FreeAddress(t)
	r.cage = lockUp(t, r.program, "--endpoints", list, "--model", vocab.Name+"="+model, "--model", poison+"="+bad, "--unknown-model", "place", "--pick-listen", r.pick)
	r.openEnvoy()
	return r
}

// openLiar opens the engine that lies: it serves requests as the first engine does.
func (r *rig) openLiar() {
	to, err := url.Parse("http://" + r.fleet.Engines()[0].Addr())
	if err != nil {
		r.t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	r.liar.says.Store("/kv_event_sources", func(w http.ResponseWriter) { http.Error(w, "none", http.StatusNotFound) })
	r.liar.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if say, ok := r.liar.says.Load(q.URL.Path); ok {
			say.(func(http.ResponseWriter))(w)
			return
		}
		for _, name := range smuggled {
			if q.Header.Get(name) != "" {
				r.liar.smuggled.Add(1)
			}
		}
		proxy.ServeHTTP(w, q)
	}))
	r.t.Cleanup(r.liar.Close)
}

// stir changes the list of endpoints, without a change of addresses: engines are asked anew.
func (r *rig) stir() {
	r.stirred++
	r.writeEndpoints(r.addr(r.liar.URL))
}

// writeEndpoints writes the endpoints file: the engines, and more addresses.
func (r *rig) writeEndpoints(more ...string) string {
	var list []sim.Endpoint
	if r.fleet != nil {
		list = r.fleet.Endpoints()
	}
	for i, at := range more {
		host, port, err := net.SplitHostPort(at)
		if err != nil {
			r.t.Fatal(err)
		}
		n, _ := strconv.Atoi(port)
		list = append(list, sim.Endpoint{Name: fmt.Sprintf("more-%d-%d", r.stirred, i), Namespace: "default", Address: host, Port: n, Model: vocab.Name})
	}
	b, err := yaml.Marshal(map[string]any{"endpoints": list})
	if err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(r.dir, "endpoints.yaml")
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func (r *rig) addr(u string) string { return strings.TrimPrefix(u, "http://") }

func (r *rig) openEnvoy() {
	addrs := []string{r.addr(r.liar.URL)}
	for _, e := range r.fleet.Engines() {
		addrs = append(addrs, e.Addr())
	}
	conf, err := envoyconf.Render(envoyconf.Params{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", ExtProc: []string{r.cage.extproc}, Endpoints: addrs, MessageTimeout: 30 * time.Second})
	if err != nil {
		r.t.Fatal(err)
	}
	r.envoy = testkit.StartEnvoy(r.t, testkit.PatientEnvoy(r.t, conf))
	r.url = "http://" + r.envoy.Addr("inference")
}

// post sends a body through Envoy and returns the status, 0 without an answer.
func (r *rig) post(path string, body []byte, header ...string) int {
	q, err := http.NewRequest(http.MethodPost, r.url+path, bytes.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return 0
	}
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Timeout: time.Minute}).Do(q)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// honest asks as people do, until stop is closed, and tells how long each request
// took and how many were not served.
func (r *rig) honest(stop <-chan struct{}) (times []time.Duration, failed int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for k := range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				body := fmt.Appendf(nil, `{"model":%q,"max_tokens":4,"messages":[{"role":"user","content":"once upon a time there were %d and %d"}]}`, vocab.Name, k, i)
				began := time.Now()
				status := r.post("/v1/chat/completions", body)
				mu.Lock()
				if times = append(times, time.Since(began)); status != http.StatusOK {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return times, failed
}

// proxy asks as an honest proxy does, until stop is closed, and tells how long each answer took.
func (r *rig) proxy(stop <-chan struct{}) (times []time.Duration) {
	conn, c := r.dial()
	defer conn.Close()
	for {
		select {
		case <-stop:
			return times
		case <-time.After(20 * time.Millisecond):
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
		began := time.Now()
		if s, err := c.Process(ctx); err == nil && s.Send(headersOf("GET", true)) == nil {
			if _, err := s.Recv(); err == nil {
				times = append(times, time.Since(began))
			}
			_ = s.CloseSend()
			_, _ = s.Recv() // its end
		}
		cancel()
	}
}

// slowest returns the time within which 99 of 100 requests were served.
func slowest(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)*99/100]
}
