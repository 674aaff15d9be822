package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/prompt"
)

// fakeEngine answers renderings.
type fakeEngine struct {
	*httptest.Server
	asked  atomic.Int32
	answer atomic.Pointer[string]
	status atomic.Int32
	hold   chan struct{}
}

func newFakeEngine(t *testing.T, answer string) *fakeEngine {
	f := &fakeEngine{}
	f.answer.Store(&answer)
	f.status.Store(http.StatusOK)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked.Add(1)
		io.Copy(io.Discard, r.Body)
		if r.URL.Path != pathRender || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("asked %s as %s", r.URL.Path, r.Header.Get("Content-Type"))
		}
		if f.hold != nil {
			select {
			case <-f.hold:
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(int(f.status.Load()))
		io.WriteString(w, *f.answer.Load())
	}))
	t.Cleanup(f.Close)
	return f
}

// engineModels returns a registry with one model that only engines render.
func engineModels(t *testing.T, o Options) (*prompt.Models, *Renderer) {
	dir := t.TempDir()
	vocab := `{"model":{"type":"BPE","vocab":{"A":32,"B":33,"C":34},"merges":[]}}`
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(vocab), 0o600); err != nil {
		t.Fatal(err)
	}
	r := New(o)
	m := prompt.NewModels(prompt.ModelsOptions{Engine: r.Render})
	t.Cleanup(m.Close)
	m.Set([]prompt.Config{{Path: dir, Options: prompt.Options{Name: "a"}}})
	if err := m.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m, r
}

func TestEngineRender(t *testing.T) {
	f := newFakeEngine(t, `{"token_ids":[32,33]}`)
	m, asker := engineModels(t, Options{Endpoints: func(string) []string { return []string{f.URL} }, Timeout: 5 * time.Second})
	render := func(body string) (string, prompt.Info, error) {
		out, info, err := m.Render(t.Context(), "a", []byte("~"), []byte(body), prompt.KindChat)
		return string(out), info, err
	}
	for range 2 {
		out, info, err := render(`{"messages":[]}`)
		if err != nil || out != "~AB" || !info.Engine || info.Tokens != 2 || info.Truncated {
			t.Errorf("got %q %+v, %v", out, info, err)
		}
	}
	if n := f.asked.Load(); n != 1 {
		t.Errorf("asked %d times, want once: the second time is in the cache", n)
	}
	cases := []struct{ answer, want string }{
		{`[{"request_id":"x","prompt_token_ids":[34]}]`, "~C"},
		{`[[{"role":"user"}],[{"prompt_token_ids":[32,34]}]]`, "~AC"},
		{`{"token_ids":[32,33,34],"features":{"mm_placeholders":{"image":[{"offset":2,"length":1},{"offset":1,"length":1}]}}}`, "~A"},
		{`{"token_ids":[32],"features":null}`, "~A"},
	}
	for i, c := range cases {
		f.answer.Store(&c.answer)
		if out, info, err := render(fmt.Sprintf(`{"messages":[%d]}`, i)); err != nil || out != c.want || info.Truncated != (i == 2) {
			t.Errorf("%s: got %q %+v, %v", c.answer, out, info, err)
		}
	}
	for i, answer := range []string{`{}`, `[]`, `{"token_ids":"x"}`, `{"token_ids":[1.5]}`, `{"token_ids":[-1]}`, `x`, `{"token_ids":[99999]}`} {
		f.answer.Store(&answer)
		asker.breaker.report(time.Now(), true)
		if out, _, err := render(fmt.Sprintf(`{"messages":["%d"]}`, i)); err == nil || out != "~" {
			t.Errorf("%s: got %q, no error", answer, out)
		}
	}
	if st := m.Status()[0]; st.Renderer != "engine" || st.Missed[prompt.ReasonEngine] != 6 || st.Missed[prompt.ReasonUnknownToken] != 1 {
		t.Errorf("status %+v", st)
	}
}

func TestEngineBreaker(t *testing.T) {
	now := time.Unix(1000, 0)
	f := newFakeEngine(t, `{"token_ids":[32]}`)
	f.status.Store(http.StatusInternalServerError)
	m, _ := engineModels(t, Options{
		Endpoints: func(string) []string { return []string{f.URL} }, Timeout: 5 * time.Second,
		Failures: 2, OpenFor: time.Minute, Now: func() time.Time { return now },
	})
	n := 0
	reason := func() prompt.Reason {
		n++
		_, _, err := m.Render(t.Context(), "a", nil, fmt.Appendf(nil, `{"messages":[%d]}`, n), prompt.KindChat)
		return prompt.ReasonOf(err)
	}
	for i, want := range []prompt.Reason{prompt.ReasonEngine, prompt.ReasonEngine, prompt.ReasonBudget, prompt.ReasonBudget} {
		if got := reason(); got != want {
			t.Errorf("attempt %d: %s, want %s", i, got, want)
		}
	}
	now = now.Add(time.Minute)
	if got := reason(); got != prompt.ReasonEngine || f.asked.Load() != 3 {
		t.Errorf("after the pause: %s, asked %d times", got, f.asked.Load())
	}
	if got := reason(); got != prompt.ReasonBudget {
		t.Errorf("after the failed probe: %s", got)
	}
	now = now.Add(time.Minute)
	f.status.Store(http.StatusOK)
	for range 3 {
		if got := reason(); got != prompt.ReasonNone {
			t.Errorf("after the engine is back: %s", got)
		}
	}
}

func TestEngineBudget(t *testing.T) {
	f := newFakeEngine(t, `{"token_ids":[32]}`)
	f.hold = make(chan struct{})
	m, asker := engineModels(t, Options{Endpoints: func(string) []string { return []string{f.URL} }, Timeout: 10 * time.Second, Concurrent: 1})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := m.Render(ctx, "a", nil, []byte(`{"messages":[1]}`), prompt.KindChat)
		done <- err
	}()
	for f.asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, _, err := m.Render(t.Context(), "a", nil, []byte(`{"messages":[2]}`), prompt.KindChat); prompt.ReasonOf(err) != prompt.ReasonBudget {
		t.Errorf("a second rendering at a time: %v", err)
	}
	cancel()
	if err := <-done; prompt.ReasonOf(err) != prompt.ReasonEngine || !errors.Is(err, context.Canceled) {
		t.Errorf("a client that went away: %v", err)
	}
	if asker.breaker.failures != 0 {
		t.Error("a client that went away counts against the engine")
	}
	close(f.hold)
	none, _ := engineModels(t, Options{})
	if _, _, err := none.Render(t.Context(), "a", nil, []byte(`{"messages":[]}`), prompt.KindChat); prompt.ReasonOf(err) != prompt.ReasonBudget {
		t.Errorf("without endpoints: %v", err)
	}
}

func TestEngineTimeout(t *testing.T) {
	f := newFakeEngine(t, `{"token_ids":[32]}`)
	f.hold = make(chan struct{})
	defer close(f.hold)
	m, asker := engineModels(t, Options{Endpoints: func(string) []string { return []string{f.URL} }, Timeout: 10 * time.Millisecond})
	if _, _, err := m.Render(t.Context(), "a", nil, []byte(`{"messages":[]}`), prompt.KindChat); prompt.ReasonOf(err) != prompt.ReasonEngine || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a slow engine: %v", err)
	}
	if asker.breaker.failures != 1 {
		t.Error("a slow engine does not count as a failure")
	}
}

func TestRenderCache(t *testing.T) {
	c := renderCache{limit: 3 * (10 + entryOverhead), index: map[cacheKey]*cacheEntry{}}
	key := func(i int) cacheKey { return cacheKey{uint64(i), 1} }
	for i := range 3 {
		c.put(key(i), []byte("0123456789"), prompt.Info{Tokens: i})
	}
	c.get(nil, key(0)) // the oldest is now 1
	c.put(key(3), []byte("0123456789"), prompt.Info{})
	c.put(key(9), make([]byte, 10_000), prompt.Info{})
	for i, want := range []bool{true, false, true, true} {
		if _, info, ok := c.get(nil, key(i)); ok != want || ok && i < 3 && info.Tokens != i {
			t.Errorf("entry %d is there: %v", i, ok)
		}
	}
	c.put(key(0), []byte("x"), prompt.Info{})
	if out, _, _ := c.get([]byte("~"), key(0)); string(out) != "~x" || len(c.index) != 3 || c.bytes != 21+3*entryOverhead {
		t.Errorf("got %q, %d entries, %d bytes", out, len(c.index), c.bytes)
	}
}
