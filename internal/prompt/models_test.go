package prompt

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// loader is a Load that tests control.
type loader struct {
	mu    sync.Mutex
	calls int
	model *Model
	err   error
	hold  chan struct{} // blocks loads until closed
}

func (l *loader) load(_ string, o Options) (*Model, error) {
	l.mu.Lock()
	l.calls++
	model, err, hold := l.model, l.err, l.hold
	l.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if model != nil {
		c := &Model{opts: o, vocab: model.vocab, chat: model.chat, special: model.special, bos: model.bos, eos: model.eos}
		c.pool.New = func() any { return new(scratch) }
		if c.opts.Now == nil {
			c.opts.Now = time.Now
		}
		model = c
	}
	return model, err
}

func (l *loader) set(model *Model, err error, hold chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.model, l.err, l.hold = model, err, hold
}

func named(name string, aliases, adapters []string) Config {
	return Config{Path: "/m/" + name, Options: Options{Name: name, Aliases: aliases, Adapters: adapters}}
}

func TestModelsLifecycle(t *testing.T) {
	small := smallModel(t, folderOf(plainTemplate), Options{})
	synctest.Test(t, func(t *testing.T) {
		l := &loader{}
		hold := make(chan struct{})
		l.set(small, nil, hold)
		m := NewModels(ModelsOptions{load: l.load})
		defer m.Close()
		m.Set([]Config{named("a", []string{"alias"}, []string{"lora"})})
		synctest.Wait()
		if _, _, r := m.Lookup("a"); r != ReasonLoading {
			t.Errorf("while loading: %s", r)
		}
		if _, _, r := m.Lookup("zz"); r != ReasonNoModel {
			t.Errorf("unknown: %s", r)
		}
		close(hold)
		if err := m.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, adapter := range map[string]string{"a": "", "alias": "", "lora": "lora"} {
			model, got, r := m.Lookup(name)
			if model == nil || got != adapter || r != ReasonNone {
				t.Errorf("%s: %v, adapter %q, %s", name, model, got, r)
			}
		}
		before, _, _ := m.Lookup("a")

		// A failed reload keeps the current version.
		l.set(nil, errors.New("disk on fire"), nil)
		m.Reload()
		m.Wait(t.Context())
		if after, _, _ := m.Lookup("a"); after != before {
			t.Error("a failed reload changed the model in use")
		}
		st := m.Status()
		if len(st) != 1 || st[0].State != StateReady || st[0].Error != "disk on fire" || st[0].Renderer != "jinja" {
			t.Errorf("status %+v", st)
		}

		// A model that never loaded has failed; it is back after a reload.
		m.Set([]Config{named("a", []string{"alias"}, []string{"lora"}), named("b", nil, nil)})
		m.Wait(t.Context())
		if _, _, r := m.Lookup("b"); r != ReasonFailed {
			t.Errorf("unreadable: %s", r)
		}
		if l.calls != 3 {
			t.Errorf("%d loads, want 3: an unchanged model is not read again", l.calls)
		}
		l.set(small, nil, nil)
		m.Reload()
		m.Wait(t.Context())
		if _, _, r := m.Lookup("b"); r != ReasonNone {
			t.Errorf("after a reload: %s", r)
		}
		if after, _, _ := m.Lookup("a"); after == before {
			t.Error("a reload changed nothing")
		}
		m.Set([]Config{named("b", []string{"a"}, nil)})
		if model, _, _ := m.Lookup("a"); model == nil || model.Name() != "b" {
			t.Error("a freed name cannot become an alias")
		}
	})
}

// TestModelsStaleLoad checks that an outdated load that finishes late has no effect.
func TestModelsStaleLoad(t *testing.T) {
	small := smallModel(t, folderOf(plainTemplate), Options{})
	synctest.Test(t, func(t *testing.T) {
		l := &loader{}
		hold := make(chan struct{})
		l.set(small, nil, hold)
		m := NewModels(ModelsOptions{load: l.load})
		m.Set([]Config{named("a", nil, nil)})
		synctest.Wait()
		l.set(nil, errors.New("newer"), nil)
		m.Reload()
		close(hold)
		m.Wait(t.Context())
		if _, _, r := m.Lookup("a"); r != ReasonFailed {
			t.Errorf("the older load won: %s", r)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		hold = make(chan struct{})
		l.set(small, nil, hold)
		m.Reload()
		if err := m.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait: %v", err)
		}
		time.AfterFunc(time.Second, func() { close(hold) })
		m.Close()
		if _, _, r := m.Lookup("a"); r != ReasonFailed {
			t.Errorf("a load that ended after Close was put in use: %s", r)
		}
		m.Set([]Config{named("z", nil, nil)})
		m.Reload()
		if len(m.Status()) != 1 {
			t.Error("Set works after Close")
		}
	})
}

func TestModelsRenderCounts(t *testing.T) {
	var logs bytes.Buffer
	small := smallModel(t, folderOf(plainTemplate), Options{})
	l := &loader{model: small}
	m := NewModels(ModelsOptions{load: l.load, Log: slog.New(slog.NewTextHandler(&logs, nil))})
	defer m.Close()
	m.Set([]Config{named("a", nil, nil)})
	if err := m.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	render := func(name, body string) (string, error) {
		out, _, err := m.Render(t.Context(), name, []byte("~"), []byte(body), KindChat)
		return string(out), err
	}
	if out, err := render("a", `{"messages":[{"role":"user","content":"hi"}]}`); err != nil || out != "~[user]hi\n[assistant]" {
		t.Errorf("got %q, %v", out, err)
	}
	for _, body := range []string{`{`, `{"messages":[],"chat_template":"x"}`, `{"messages":[],"chat_template":"secret"}`, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`} {
		if out, err := render("a", body); out != "~" && err != nil {
			t.Errorf("%s: dst is %q", body, out)
		}
	}
	if _, err := render("zz", `{}`); ReasonOf(err) != ReasonNoModel {
		t.Errorf("unknown model: %v", err)
	}
	st := m.Status()[0]
	want := [NumReasons]uint64{ReasonBody: 1, ReasonUnsupported: 2, ReasonMedia: 1}
	if st.Rendered != 2 || st.Missed != want || m.Unknown() != 1 {
		t.Errorf("rendered %d, missed %v, unknown %d", st.Rendered, st.Missed, m.Unknown())
	}
	if _, err := render("zz", `{}`); ReasonOf(err) != ReasonNoModel {
		t.Errorf("unknown model again: %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, _, err := m.Render(gone, "a", nil, []byte(`{"messages":[{"role":"user","content":"hi"}]}`), KindChat); ReasonOf(err) != ReasonDeadline {
		t.Errorf("a client that left: %v", err)
	}
	if n := strings.Count(logs.String(), "requests name a model without a configured tokenizer"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, logs.String())
	}
	if n := strings.Count(logs.String(), "prompts of this model are matched approximately"); n != 1 || strings.Contains(logs.String(), "secret") {
		t.Errorf("logged %d times:\n%s", n, logs.String())
	}
}
