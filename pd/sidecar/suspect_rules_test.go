package sidecar

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// fleet is a transport to engines that exist in the test's memory, so that time can be fake.
type fleet struct {
	mu      sync.Mutex
	engines map[string]*fakeEngine
}

// fakeEngine computes each prompt for a second. All prompts in flight at its death get its last answer.
type fakeEngine struct {
	down    error         // of its connections; nil: it is up
	death   chan struct{} // closed at its death
	last    int           // status of the last answers; 0: the connections break
	restart time.Duration // after a death; 0: it stays down
	gone    time.Duration // after a death until its host is unreachable; 0: never

	cuts   bool // breaks the connection of a killer if other prompts are in flight
	immune bool // does not compute prompts

	deaths, busy, most int
	crowd              int // prompts in flight at the last death
}

func (f *fleet) engine(host string) *fakeEngine {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.engines[host]
	if e == nil {
		e = &fakeEngine{death: make(chan struct{}), last: http.StatusInternalServerError}
		f.engines[host] = e
	}
	return e
}

// kill ends an engine, and restarts it later.
func (f *fleet) kill(e *fakeEngine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.down != nil {
		return
	}
	e.deaths++
	e.crowd = e.busy
	e.down = syscall.ECONNREFUSED
	close(e.death)
	set := func(err error) func() {
		return func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if e.down = err; err == nil {
				e.death = make(chan struct{})
			}
		}
	}
	if e.restart > 0 {
		time.AfterFunc(e.restart, set(nil))
	}
	if e.gone > 0 {
		time.AfterFunc(e.gone, set(syscall.EHOSTUNREACH))
	}
}

// RoundTrip implements http.RoundTripper.
func (f *fleet) RoundTrip(r *http.Request) (*http.Response, error) {
	e := f.engine(r.URL.Host)
	f.mu.Lock()
	down, death := e.down, e.death
	f.mu.Unlock()
	if down != nil {
		return nil, down
	}
	if r.URL.Path == "/health" {
		return said("", ""), nil
	}
	body, _ := io.ReadAll(r.Body)
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.WroteRequest != nil {
		trace.WroteRequest(httptrace.WroteRequestInfo{})
	}
	f.mu.Lock()
	e.busy++
	e.most = max(e.most, e.busy)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		e.busy--
	}()
	if strings.Contains(string(body), "killer") && !e.immune {
		time.AfterFunc(time.Second/2, func() { f.kill(e) })
	}
	select {
	case <-time.After(time.Second):
		return said(soundPrefill, "application/json"), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-death:
	}
	if e.last == 0 || e.cuts && e.crowd > 1 && strings.Contains(string(body), "killer") {
		return nil, io.ErrUnexpectedEOF
	}
	resp := said(`{"error":{}}`, "application/json")
	resp.StatusCode = e.last
	return resp, nil
}

// send sends prompts through a sidecar at the same time, and kills an engine 100 ms later, unless its
// name is "". It returns the status of each, and when the last one was answered.
func (f *fleet) send(t *testing.T, o Options, targets string, prompts []string, kill string) (codes map[string]int, took time.Duration) {
	t.Helper()
	o.Engine, o.Transport = "http://"+decodeEngine, f
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	begun, codes := time.Now(), map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, prompt := range prompts {
		wg.Go(func() {
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"`+prompt+`"}]}`))
			if targets != "" {
				r.Header.Set(headerPrefiller, targets)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code == http.StatusOK && w.Header().Get(request.HeaderKVTransfer) == "" && targets != "" {
				t.Errorf("%s: the answer has no report", prompt)
			}
			mu.Lock()
			defer mu.Unlock()
			codes[prompt] = w.Code
		})
	}
	if kill != "" {
		time.Sleep(100 * time.Millisecond)
		f.kill(f.engine(kill))
	}
	wg.Wait()
	return codes, time.Since(begun)
}

func innocents(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("hello %d", i))
	}
	return list
}

const firstPrefill, otherPrefill = "10.0.0.1:8000", "10.0.0.2:8000"

// TestSuspects: prompts in flight at the death of an engine are answered in the end, and a prompt
// ends one engine at most.
func TestSuspects(t *testing.T) {
	const wait = 3 * time.Minute // Options.SuspectWait by default
	for name, c := range map[string]struct {
		connector Connector
		whole     bool // the engine that dies is decode's
		prompts   []string
		kill      bool // from outside, otherwise the killer does it
		dies      fakeEngine
		want      int // status of innocents
		least     time.Duration
		most      time.Duration // within which all are answered
		alone     bool          // one prompt at a time at decode
	}{
		// Prefill engines.
		"killed, several in flight":         {kill: true, prompts: innocents(20), dies: fakeEngine{}, want: 200, least: 5 * time.Second, most: 10 * time.Second},
		"killed, one in flight":             {kill: true, prompts: innocents(1), dies: fakeEngine{}, want: 200, least: 5 * time.Second, most: 10 * time.Second},
		"killed, restarts":                  {kill: true, prompts: innocents(20), dies: fakeEngine{restart: 4 * time.Second}, want: 200, least: 4 * time.Second, most: 10 * time.Second},
		"500, several in flight":            {kill: true, prompts: innocents(20), dies: fakeEngine{last: 500}, want: 200, least: wait, most: wait + 30*time.Second, alone: true},
		"500, one in flight":                {kill: true, prompts: innocents(1), dies: fakeEngine{last: 500}, want: 200, least: wait, most: wait + 5*time.Second},
		"500, restarts":                     {kill: true, prompts: innocents(20), dies: fakeEngine{last: 500, restart: time.Minute}, want: 200, least: time.Minute, most: 2 * time.Minute},
		"500, pod deleted":                  {kill: true, prompts: innocents(20), dies: fakeEngine{last: 500, gone: 2 * time.Second}, want: 200, least: 10 * time.Second, most: 20 * time.Second},
		"killer, restarts":                  {prompts: append(innocents(20), "killer"), dies: fakeEngine{last: 500, restart: time.Minute}, want: 200, least: time.Minute, most: 100 * time.Second},
		"killer without an answer":          {prompts: append(innocents(20), "killer"), dies: fakeEngine{last: 500, restart: time.Minute, cuts: true}, want: 200, least: time.Minute, most: 100 * time.Second},
		"killer alone":                      {prompts: []string{"killer"}, dies: fakeEngine{last: 500, restart: time.Minute}, most: 2 * time.Minute},
		"TensorRT-LLM, killed":              {connector: TRTLLM, kill: true, prompts: innocents(5), dies: fakeEngine{}, want: 200, least: wait, most: wait + 20*time.Second, alone: true},
		"TensorRT-LLM, killer":              {connector: TRTLLM, prompts: append(innocents(5), "killer"), dies: fakeEngine{restart: time.Minute}, want: 200, most: 100 * time.Second},
		"SGLang, killer":                    {connector: SGLang, prompts: append(innocents(5), "killer"), dies: fakeEngine{restart: time.Minute}, want: 200, most: 100 * time.Second},
		"decode killed":                     {whole: true, kill: true, prompts: innocents(20), dies: fakeEngine{}, want: 503, least: 5 * time.Second, most: 7 * time.Second},
		"decode killed, restarts":           {whole: true, kill: true, prompts: innocents(20), dies: fakeEngine{restart: 4 * time.Second}, want: 200, most: 10 * time.Second},
		"decode, 500":                       {whole: true, kill: true, prompts: innocents(20), dies: fakeEngine{last: 500}, want: 503, least: wait, most: wait + 5*time.Second},
		"decode, 500, restarts":             {whole: true, kill: true, prompts: innocents(20), dies: fakeEngine{last: 500, restart: time.Minute}, want: 200, least: time.Minute, most: 2 * time.Minute},
		"decode, killer alone":              {whole: true, prompts: []string{"killer"}, dies: fakeEngine{last: 500, restart: time.Minute}, most: 2 * time.Minute},
		"decode, killer and innocents":      {whole: true, prompts: append(innocents(20), "killer"), dies: fakeEngine{last: 500, restart: time.Minute}, want: -1, most: 100 * time.Second},
		"decode of SGLang, killer and many": {connector: SGLang, whole: true, prompts: append(innocents(20), "killer"), dies: fakeEngine{restart: time.Minute}, want: -1, most: 100 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				victim, targets := firstPrefill, firstPrefill+","+otherPrefill
				if c.whole {
					victim, targets = decodeEngine, ""
				}
				e := c.dies
				e.death = make(chan struct{})
				f := &fleet{engines: map[string]*fakeEngine{victim: &e}}
				if c.connector == SGLang && !c.whole {
					f.engine(decodeEngine).immune = true
				}
				kill := ""
				if c.kill {
					kill = victim
				}
				codes, took := f.send(t, Options{Connector: c.connector}, targets, c.prompts, kill)
				for prompt, code := range codes {
					switch {
					case prompt == "killer" && code != http.StatusInternalServerError:
						t.Errorf("killer: status %d, want 500", code)
					case prompt != "killer" && code != c.want && (c.want >= 0 || code != 200 && code != 503):
						t.Errorf("%s: status %d, want %d", prompt, code, c.want)
					}
				}
				if took < c.least || took > c.most {
					t.Errorf("all were answered after %v, want %v to %v", took, c.least, c.most)
				}
				for host, e := range f.engines {
					if host != victim && e.deaths > 0 {
						t.Errorf("%s died too", host)
					}
				}
				if c.alone && f.engines[decodeEngine].most > 1 {
					t.Errorf("decode computed %d suspects at the same time", f.engines[decodeEngine].most)
				}
			})
		})
	}
}

// TestKillerAtABusyEngine: other prompts in flight at the decode engine survive a killer that ended a
// prefill engine.
func TestKillerAtABusyEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{engines: map[string]*fakeEngine{firstPrefill: {last: 500, restart: time.Minute, death: make(chan struct{})}}}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				codes, _ := f.send(t, Options{}, otherPrefill, innocents(3), "")
				for prompt, code := range codes {
					if code != http.StatusOK {
						t.Errorf("%s of round %d: status %d", prompt, n, code)
					}
				}
			}
		})
		if codes, _ := f.send(t, Options{}, firstPrefill, []string{"killer"}, ""); codes["killer"] != http.StatusInternalServerError {
			t.Errorf("killer: status %d", codes["killer"])
		}
		close(stop)
		wg.Wait()
		for host, e := range f.engines {
			if host != firstPrefill && e.deaths > 0 {
				t.Errorf("%s died too", host)
			}
		}
	})
}
