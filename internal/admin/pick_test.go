package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// fixedChooser places all requests at two endpoints, except for models that it refuses.
type fixedChooser struct {
	asked []request.Request

	mu   sync.Mutex
	over []request.Outcome
}

func (c *fixedChooser) ended() []request.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.over)
}

func (c *fixedChooser) Choose(_ context.Context, r *request.Request) (*request.Decision, error) {
	if r.Model == "full" {
		return nil, request.Errorf(request.ReasonSaturated, "the pool is full")
	}
	kept := *r
	kept.Body = nil
	c.asked = append(c.asked, kept)
	d := &request.Decision{Endpoints: []string{"10.0.0.1:80", "10.0.0.2:80"}, SetHeaders: []request.HeaderSet{{Name: "x-prefiller-host-port", Value: "10.0.0.3:80"}}}
	d.Release = func(o request.Outcome) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.over = append(c.over, o)
	}
	return d, nil
}

func call(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func pickOf(t *testing.T, o PickOptions) (*Pick, *fixedChooser) {
	t.Helper()
	c := &fixedChooser{}
	o.Chooser = c
	p, err := newPick(o)
	if err != nil {
		t.Fatal(err)
	}
	return p, c
}

const completion = `{"model":"m","prompt":"hello"}`

func TestPick(t *testing.T) {
	p, c := pickOf(t, PickOptions{})
	h := p.Handler()
	w := call(h, "POST", "/v1/pick", completion, "X-Original-Uri", "/v1/completions?x=1", "X-Session-Id", "s", request.HeaderDestination, "6.6.6.6:1")
	var answer struct{ ID, Destination, Fallback string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for name, want := range map[string]string{request.HeaderDestination: "10.0.0.1:80", request.HeaderFallback: "10.0.0.2:80", headerPickID: answer.ID, "x-prefiller-host-port": "10.0.0.3:80"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if answer.Destination != "10.0.0.1:80" || answer.Fallback != "10.0.0.2:80" {
		t.Errorf("answer %+v", answer)
	}
	if q := c.asked[0]; q.Path != "/v1/completions" || q.Model != "m" || q.Session != "s" {
		t.Errorf("asked %+v", q)
	}
	if w := call(h, "POST", "/v1/pick/"+answer.ID+"/end?status=200&served=10.0.0.2:80", ""); w.Code != http.StatusNoContent {
		t.Errorf("end: %d", w.Code)
	}
	if w := call(h, "POST", "/v1/pick/"+answer.ID+"/end", ""); w.Code != http.StatusNotFound {
		t.Errorf("second end: %d", w.Code)
	}
	if len(c.ended()) != 1 || c.ended()[0].Status != 200 || !c.ended()[0].Complete || c.ended()[0].Served != "10.0.0.2:80" {
		t.Errorf("ended %+v", c.ended())
	}
}

// TestPickBodies: requests with truncated, invalid and missing bodies are placed.
func TestPickBodies(t *testing.T) {
	p, c := pickOf(t, PickOptions{MaxBody: 20})
	h := p.Handler()
	for _, body := range []string{completion, `{"model":`, "no JSON", ""} {
		if w := call(h, "POST", "/v1/pick", body, "X-Forwarded-Uri", "/v1/completions"); w.Code != 200 {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	}
	if w := call(h, "GET", "/v1/pick", "", "X-Forwarded-Uri", "/v1/realtime"); w.Code != 200 || c.asked[4].Path != "/v1/realtime" {
		t.Errorf("GET: %d", w.Code)
	}
}

func TestPickRefuses(t *testing.T) {
	p, _ := pickOf(t, PickOptions{Token: "secret", MaxOpen: 1})
	h := p.Handler()
	if w := call(h, "POST", "/v1/pick", completion); w.Code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", w.Code)
	}
	auth := []string{"Authorization", "Bearer secret", "X-Original-Uri", "/v1/completions"}
	w := call(h, "POST", "/v1/pick", `{"model":"full","prompt":"x"}`, auth...)
	if w.Code != 429 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"message":"the pool is full"`) || w.Body.Len() > 4<<10 {
		t.Errorf("saturated: %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := call(h, "POST", "/v1/pick", `{"model":"m","prompt":"x","kv_transfer_params":{"do_remote_prefill":true}}`, auth...); w.Code != 400 {
		t.Errorf("body with proxy fields: %d", w.Code)
	}
	if w := call(h, "POST", "/v1/pick", "", "Authorization", "Bearer secret", "X-Original-Uri", "/flush_cache"); w.Code != 403 {
		t.Errorf("a call that controls an engine: %d", w.Code)
	}
	if w := call(h, "POST", "/v1/pick", completion, auth...); w.Code != 200 {
		t.Errorf("first: %d", w.Code)
	}
	if w := call(h, "POST", "/v1/pick", completion, auth...); w.Code != 503 {
		t.Errorf("pick above the caller's limit: %d", w.Code)
	}
	if _, err := OpenPick(PickOptions{Bind: "0.0.0.0:0", Chooser: &fixedChooser{}}); err == nil {
		t.Error("listens beyond loopback without a token")
	}
}

// TestPickExpires: a pick without an end expires, once.
func TestPickExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := pickOf(t, PickOptions{Expiry: time.Minute})
		h := p.Handler()
		id := call(h, "POST", "/v1/pick", completion).Header().Get(headerPickID)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(c.ended()) != 0 {
			t.Error("expired too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(c.ended()) != 1 || c.ended()[0].Complete || len(p.open) != 0 || len(p.each) != 0 {
			t.Errorf("ended %+v, open %d, callers %d", c.ended(), len(p.open), len(p.each))
		}
		if w := call(h, "POST", "/v1/pick/"+id+"/end", ""); w.Code != http.StatusNotFound {
			t.Errorf("end after expiry: %d", w.Code)
		}
	})
}

// TestPickBodiesTakeMemory: bodies without memory are rejected, and memory is released.
func TestPickBodiesTakeMemory(t *testing.T) {
	b := budget.New(5 << 10)
	p, _ := pickOf(t, PickOptions{Budget: b})
	h := p.Handler()
	if w := call(h, "POST", "/v1/pick", completion); w.Code != http.StatusOK {
		t.Errorf("a small body: %d %s", w.Code, w.Body)
	}
	large := `{"model":"m","prompt":"` + strings.Repeat("x", int(b.Share(budget.Bodies))) + `"}`
	if w := call(h, "POST", "/v1/pick", large); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a body beyond the memory: %d %s", w.Code, w.Body)
	}
	r := httptest.NewRequest("POST", "/v1/pick", strings.NewReader(completion))
	r.ContentLength = -1 // unknown length
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("a body of unknown length: %d %s", w.Code, w.Body)
	}
	if used := b.Used(budget.Bodies); used != 0 {
		t.Errorf("%d bytes still reserved", used)
	}
}
