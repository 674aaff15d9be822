package sidecar

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// mortal is an engine that crashes on prompts that contain "killer", as real engines do.
type mortal struct {
	at      string
	form    string       // of its death
	died    atomic.Bool  // and has not restarted
	deaths  atomic.Int64 // that prompts caused
	served  atomic.Int64
	held    chan struct{} // if set, requests wait until it is closed
	entered chan struct{}
	server  atomic.Pointer[http.Server]
}

// Forms of death.
const (
	answers500 = "answers 500, then closes its port"
	resets     = "breaks the connection, then closes its port"
	midAnswer  = "breaks off within the answer, then closes its port"
	healthGone = "answers 500, and its /health 503 from then on"
)

func newMortal(t *testing.T, form string) *mortal {
	t.Helper()
	m := &mortal{form: form, entered: make(chan struct{}, 100)}
	m.listen(t, "127.0.0.1:0")
	return m
}

func (m *mortal) listen(t *testing.T, at string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	m.at = l.Addr().String()
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	m.server.Store(server)
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
}

// die closes the port, and all connections except the one that gets the last answer.
func (m *mortal) die() {
	if m.form != healthGone {
		go m.server.Load().Close()
	}
}

// restart starts an engine again that a prompt has crashed.
func (m *mortal) restart(t *testing.T) {
	if !m.died.Load() {
		return
	}
	m.died.Store(false)
	if m.form != healthGone {
		m.listen(t, m.at)
	}
}

// ServeHTTP implements http.Handler.
func (m *mortal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		if m.died.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return
	}
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	m.entered <- struct{}{}
	if m.held != nil {
		<-m.held
	}
	if !strings.Contains(string(body), "killer") {
		m.served.Add(1)
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"}}],"kv_transfer_params":{"remote_block_ids":[[1]],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600}}`)
		return
	}
	m.deaths.Add(1)
	m.died.Store(true) // before the client can have the answer
	defer m.die()
	switch m.form {
	case resets:
		panic(http.ErrAbortHandler)
	case midAnswer:
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{")
		panic(http.ErrAbortHandler)
	}
	const text = `{"error":{"message":"EngineCore encountered an issue","code":500}}`
	w.Header().Set("Content-Length", strconv.Itoa(len(text))) // the answer is complete before the connections are closed
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// pairing is a sidecar in front of a decode engine, with prefill engines. Those that a prompt crashes
// restart once the sidecar has noticed it.
func pairing(t *testing.T, o Options, d *mortal, prefill ...*mortal) *Server {
	t.Helper()
	o.Engine = "http://" + d.at
	if o.DeathWait == 0 && d.form != healthGone { // it ends with the first refused connection
		o.DeathWait = testkit.HangTimeout
	}
	if o.ReturnWait == 0 {
		o.ReturnWait = 200 * time.Millisecond
	}
	o.SuspectWait = testkit.HangTimeout
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for noticed := 0.; ; {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			n := testutil.ToFloat64(s.m.deaths.WithLabelValues("prefill")) + testutil.ToFloat64(s.m.deaths.WithLabelValues("decode"))
			if n > noticed {
				noticed = n
				for _, m := range append(prefill, d) {
					m.restart(t)
				}
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-ended })
	return s
}

func sendTo(s *Server, prompt string, targets ...*mortal) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"`+prompt+`"}]}`))
	var list []string
	for _, m := range targets {
		list = append(list, m.at)
	}
	if list != nil {
		r.Header.Set(headerPrefiller, strings.Join(list, ","))
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestOnePromptEndsOneEngine: an engine that dies of a prompt is the only one that gets this prompt.
// vLLM answers 500 before; TensorRT-LLM is one process and may break the connection.
func TestOnePromptEndsOneEngine(t *testing.T) {
	for _, c := range []struct {
		connector Connector
		forms     []string
	}{{NIXL, []string{answers500, healthGone}}, {Storage, []string{answers500, healthGone}}, {TRTLLM, []string{answers500, resets, midAnswer, healthGone}}} {
		for _, form := range c.forms {
			p1, p2, d := newMortal(t, form), newMortal(t, form), newMortal(t, form)
			s := pairing(t, Options{Connector: c.connector}, d, p1, p2)
			w := sendTo(s, "killer", p1, p2)
			if p1.deaths.Load() != 2 || p2.deaths.Load() > 0 || d.deaths.Load() > 0 {
				t.Errorf("connector %d, %s: deaths: prefill 1 %d, prefill 2 %d, decode %d; want the first engine only, and when it restarted", c.connector, form, p1.deaths.Load(), p2.deaths.Load(), d.deaths.Load())
			}
			if got := w.Header().Get(request.HeaderFaults); w.Code != http.StatusInternalServerError || got != "0=died" {
				t.Errorf("connector %d, %s: status %d, faults %q, want 500, 0=died", c.connector, form, w.Code, got)
			}
		}
	}
}

// TestDecodeDiesOnce: a prompt that crashes the decode engine, also after its restart, gets a status
// that gateways do not retry. A vLLM engine that vanishes without an answer was not crashed by a prompt,
// so that the gateway may try the next one.
func TestDecodeDiesOnce(t *testing.T) {
	for connector, forms := range map[Connector]map[string]int{
		NIXL:   {answers500: 500, healthGone: 500, resets: 503, midAnswer: 503},
		TRTLLM: {answers500: 500, healthGone: 500, resets: 500, midAnswer: 500},
	} {
		for form, want := range forms {
			d := newMortal(t, form)
			s := pairing(t, Options{Connector: connector}, d)
			if w := sendTo(s, "killer"); w.Code != want || d.deaths.Load() < 2 {
				t.Errorf("connector %d, %s: status %d, want %d", connector, form, w.Code, want)
			}
		}
	}
}

// TestKillersInARow: of 20 killers, one after the other, each ends at most one engine, and the prompt
// after it is served.
func TestKillersInARow(t *testing.T) {
	for i := range 20 {
		form := answers500
		if i%5 == 0 {
			form = healthGone
		}
		p1, p2, d := newMortal(t, form), newMortal(t, form), newMortal(t, form)
		o := Options{} // a closed port ends the observation, however long a busy machine needs to close it
		if form == healthGone {
			o.DeathWait = 2 * time.Second // all of it passes
		}
		s := pairing(t, o, d, p1, p2)
		w := sendTo(s, "killer", p1, p2)
		dead := 0
		for _, m := range []*mortal{p1, p2, d} {
			if m.deaths.Load() > 0 {
				dead++
			}
		}
		if dead != 1 || w.Code != http.StatusInternalServerError {
			t.Errorf("killer %d (%s): %d engines died, status %d, want 1 and 500", i, form, dead, w.Code)
		}
		if w := sendTo(s, "harmless", p2); w.Code != http.StatusOK {
			t.Errorf("killer %d (%s): the next prompt is answered with %d", i, form, w.Code)
		}
	}
}

// TestInnocentAtADeath: a request that is alone at a vLLM engine when the engine vanishes for good is
// computed by another engine.
func TestInnocentAtADeath(t *testing.T) {
	p, d := newMortal(t, resets), newMortal(t, resets)
	p.held = make(chan struct{})
	s := pairing(t, Options{}, d)
	got := make(chan *httptest.ResponseRecorder)
	go func() { got <- sendTo(s, "hello", p) }()
	<-p.entered
	p.server.Load().Close()
	close(p.held)
	if w := <-got; w.Code != http.StatusOK || w.Header().Get(request.HeaderFaults) != "0=died" {
		t.Errorf("status %d, faults %q, want 200, 0=died", w.Code, w.Header().Get(request.HeaderFaults))
	}
}

// TestInnocentsBesideAKiller: a killer ends an engine with other prompts in flight. The killer gets 500
// and ends no other engine. All other prompts are answered.
func TestInnocentsBesideAKiller(t *testing.T) {
	p, d := newMortal(t, answers500), newMortal(t, answers500)
	p.held = make(chan struct{})
	s := pairing(t, Options{}, d, p)
	var codes sync.Map
	var wg sync.WaitGroup
	for _, prompt := range []string{"hello", "killer", "hello again", "hello yet again"} {
		wg.Go(func() { codes.Store(prompt, sendTo(s, prompt, p).Code) })
		<-p.entered
	}
	close(p.held)
	wg.Wait()
	codes.Range(func(prompt, code any) bool {
		want := http.StatusOK
		if prompt == "killer" {
			want = http.StatusInternalServerError
		}
		if code != want {
			t.Errorf("%v: status %v, want %d", prompt, code, want)
		}
		return true
	})
	if d.deaths.Load() > 0 || p.deaths.Load() > 1+maxTrials {
		t.Errorf("the prompt ended the prefill engine %d times and the decode engine %d times", p.deaths.Load(), d.deaths.Load())
	}
}

// TestFalseSuspicion: failures without a death cost a delay at most.
func TestFalseSuspicion(t *testing.T) {
	t.Run("an engine that fails and lives", func(t *testing.T) {
		p := prefiller(t, says(http.StatusInternalServerError, "{}"))
		d := newMortal(t, resets)
		s := pairing(t, Options{DeathWait: 50 * time.Millisecond}, d)
		if w := sendTo(s, "hello", &mortal{at: p}); w.Code != http.StatusOK || w.Header().Get(request.HeaderFaults) != "0=status_5xx" {
			t.Errorf("status %d, faults %q, want 200, 0=status_5xx", w.Code, w.Header().Get(request.HeaderFaults))
		}
	})
	t.Run("an engine that restarts", func(t *testing.T) {
		p, d := newMortal(t, resets), newMortal(t, resets)
		p.held = make(chan struct{})
		s := pairing(t, Options{ReturnWait: testkit.HangTimeout}, d, p)
		got := make(chan *httptest.ResponseRecorder)
		go func() { got <- sendTo(s, "hello", p) }()
		<-p.entered
		p.server.Load().Close()
		testkit.Await(t, "the engine is dead", func() bool {
			c, err := net.Dial("tcp", p.at)
			if err == nil {
				c.Close()
			}
			return err != nil
		})
		close(p.held)
		testkit.Await(t, "the death is noticed", func() bool { return testutil.ToFloat64(s.m.deaths.WithLabelValues("prefill")) == 1 })
		p.listen(t, p.at)
		if w := <-got; w.Code != http.StatusOK || w.Header().Get(request.HeaderFaults) != "0=died" || !strings.HasPrefix(w.Header().Get(request.HeaderKVTransfer), "0;") {
			t.Errorf("status %d, report %q, want 200 and the prompt computed by target 0", w.Code, w.Header().Get(request.HeaderKVTransfer))
		}
	})
	t.Run("bystanders", func(t *testing.T) {
		const n = 6
		p, d := newMortal(t, resets), newMortal(t, resets)
		p.held = make(chan struct{})
		s := pairing(t, Options{}, d)
		var codes sync.Map
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { codes.Store(i, sendTo(s, "hello "+strings.Repeat("x", i), p).Code) })
			<-p.entered
		}
		p.server.Load().Close()
		close(p.held)
		wg.Wait()
		codes.Range(func(i, code any) bool {
			if code != http.StatusOK {
				t.Errorf("request %v: status %v, want 200", i, code)
			}
			return true
		})
	})
}

// TestLegsShareAnID: if the request has no ID, both engines get the same new one.
func TestLegsShareAnID(t *testing.T) {
	ids := make(chan string, 2)
	engine := func(w http.ResponseWriter, r *http.Request) {
		ids <- r.Header.Get("X-Request-Id")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, soundPrefill)
	}
	s, err := New(Options{Engine: "http://" + prefiller(t, engine)})
	if err != nil {
		t.Fatal(err)
	}
	sendTo(s, "hello", &mortal{at: prefiller(t, engine)})
	if a, b := <-ids, <-ids; a == "" || a != b {
		t.Errorf("the legs are named %q and %q, want one name", a, b)
	}
}
