package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// town is a pool of several models. Each has a base, an alias and an adapter at its own engines.
type town struct {
	*rig
	names   []string // requested continuously
	asked   atomic.Int64
	served  atomic.Int64
	mu      sync.Mutex
	refused []string       // "name at engine" of answers with 404 while it is known where names are
	changes map[string]int // starts and ends of each name's moves between engines
}

func base(i int) string    { return fmt.Sprint("model-", i) }
func alias(i int) string   { return fmt.Sprint("alias-", i) }
func adapter(i int) string { return fmt.Sprint("lora-", i) }

func openTown(t *testing.T, models, engines int, change func(*server.Options)) *town {
	t.Helper()
	r := open(t, rigOptions{
		engines: engines, server: change, engine: sim.Options{Core: engine.Config{Blocks: 512, BlockSize: 16}},
		each: func(i int, o *sim.Options) {
			o.Model, o.Aliases, o.Adapters = base(i%models), []string{alias(i % models)}, []string{adapter(i % models)}
		},
	})
	town := &town{rig: r, changes: map[string]int{}}
	for i := range models {
		town.names = append(town.names, base(i), alias(i), adapter(i))
	}
	testkit.Await(t, "the lists are read", func() bool {
		return r.metric(0, "grapevine_models_served") == float64(3*models) && r.metric(0, "grapevine_models_unknown_endpoints") == 0
	})
	return town
}

// heard is a client's view of an answer.
type heard struct {
	status int
	engine string // "": the picker's or the proxy's own answer
	body   string
}

// ask sends a chat to a model.
func (w *town) ask(model string, stream bool) heard {
	body := fmt.Sprintf(`{"model":%q,"stream":%v,"max_tokens":3,"messages":[{"role":"user","content":"of %s"}]}`, model, stream, model)
	return w.send(http.MethodPost, "/v1/chat/completions", body)
}

func (w *town) send(method, path, body string) heard {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.client.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Error(err)
		return heard{}
	}
	resp, err := w.client.HTTP.Do(req)
	if err != nil {
		w.t.Errorf("%s %s: %v", method, path, err)
		return heard{}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Errorf("%s %s: %v", method, path, err)
	}
	return heard{resp.StatusCode, resp.Header.Get(sim.HeaderEngine), string(b)}
}

// under sends requests for all names from several users until during has returned. Only names that
// are being moved may be refused, and only by the engine that they leave.
func (w *town) under(during func()) {
	stop := make(chan struct{})
	var users sync.WaitGroup
	for user := range 6 {
		users.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(user), 5))
			for {
				select {
				case <-stop:
					return
				default:
				}
				name := w.names[rng.IntN(len(w.names))]
				before := w.moved(name)
				out := w.ask(name, rng.IntN(2) == 0)
				w.asked.Add(1)
				switch {
				case out.status == http.StatusOK:
					w.served.Add(1)
				case before%2 == 0 && w.moved(name) == before: // nothing may fail
					w.fail(name, out)
				case out.status == http.StatusNotFound && out.engine != "":
				case out.status == http.StatusBadGateway && strings.Contains(out.body, "protocol error"):
					// The engine ended within the bytes of a header, which Envoy does not retry.
				default:
					w.fail(name, out)
				}
			}
		})
	}
	during()
	close(stop)
	users.Wait()
	if len(w.refused) > 0 {
		w.t.Errorf("%d of %d requests were not served, the first: %s", len(w.refused), w.asked.Load(), w.refused[0])
	}
}

// fail records an answer that no user should get.
func (w *town) fail(name string, out heard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, fmt.Sprintf("%s at %q: %d %s", name, out.engine, out.status, out.body))
}

// moved returns the number of starts and ends of a name's moves. It is odd during a move.
func (w *town) moved(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changes[name]
}

func (w *town) turn(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		w.changes[name]++
	}
}

// move changes which engines serve names, and returns once the picker has seen the change.
func (w *town) move(change func(), noticed func() bool, names ...string) {
	w.t.Helper()
	w.turn(names)
	change()
	testkit.Await(w.t, fmt.Sprint("the change of ", names), noticed)
	w.turn(names)
}

// more waits until n more requests have been served.
func (w *town) more(n int64) {
	w.t.Helper()
	until := w.served.Load() + n
	testkit.Await(w.t, "answers", func() bool { return w.served.Load() >= until })
}

// lora loads or unloads an adapter at an engine.
func (w *town) lora(how string, e *sim.Engine, name string) {
	w.t.Helper()
	resp, err := http.Post("http://"+e.Addr()+"/v1/"+how+"_lora_adapter", "application/json", strings.NewReader(fmt.Sprintf(`{"lora_name":%q,"lora_path":"/x"}`, name)))
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%s %s: %s", how, name, resp.Status)
	}
}

// lists reports whether GET /v1/models has a name, and returns its parent.
func (w *town) lists(name string) (parent string, listed bool) {
	out := w.send(http.MethodGet, "/v1/models", "")
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(out.body), &list); err != nil || out.engine != "" {
		w.t.Errorf("GET /v1/models: %v, of engine %q", err, out.engine)
	}
	for _, m := range list.Data {
		if m.ID == name {
			if m.Parent != nil {
				parent = *m.Parent
			}
			return parent, true
		}
	}
	return "", false
}

// TestModels checks pools of two, twenty and a hundred models under load. Engines load and unload
// adapters, return with other models, and fail to list their models. No request may reach an engine
// that does not serve its model, except for a moment after the engine has unloaded it.
func TestModels(t *testing.T) {
	for _, c := range []struct{ models, engines int }{{2, 6}, {20, 24}, {100, 104}} {
		t.Run(fmt.Sprintf("models=%d", c.models), func(t *testing.T) {
			w := openTown(t, c.models, c.engines, nil)
			engines := w.fleet.Engines()
			first, last := engines[0], engines[len(engines)-1] // the last engine's model has another engine
			lost := (len(engines) - 1) % c.models
			w.under(func() {
				w.more(int64(2 * len(w.names)))
				w.lora("load", first, "fresh")
				if out := w.ask("fresh", false); out.status != http.StatusOK || out.engine != first.Name() {
					t.Errorf("an adapter that was loaded just now: %+v", out)
				}
				if parent, ok := w.lists("fresh"); !ok || parent != base(0) {
					t.Errorf("it is listed %v, with parent %q", ok, parent)
				}
				w.more(50)

				changed := w.metric(0, `grapevine_models_reads_total{result="changed"}`)
				w.move(func() { w.lora("unload", first, adapter(0)) },
					func() bool { return w.metric(0, `grapevine_models_reads_total{result="changed"}`) > changed }, adapter(0))
				w.more(int64(len(w.names)))

				w.move(func() {
					if err := last.Restart(sim.RestartOptions{Model: "moved", Adapters: []string{"moved-lora"}}); err != nil {
						t.Error(err)
					}
				}, func() bool { _, ok := w.lists("moved-lora"); return ok }, base(lost), alias(lost), adapter(lost))
				for _, name := range []string{"moved", "moved-lora"} {
					if out := w.ask(name, true); out.status != http.StatusOK || out.engine != last.Name() {
						t.Errorf("a model that an engine has come back with: %s: %+v", name, out)
					}
				}
				w.more(int64(len(w.names)))

				first.SetFaults(faults.Faults{ListStatus: http.StatusInternalServerError})
				engines[1].SetFaults(faults.Faults{ListDelay: time.Hour})
				for i := range 3 {
					if out := w.ask(fmt.Sprint("nobody-", i), false); out.status != http.StatusNotFound {
						t.Errorf("a model without an engine: %+v", out)
					}
				}
				w.more(int64(2 * len(w.names)))
			})
			w.settle()
			t.Logf("%d requests, %d of them refused by an engine that had lost the name", w.asked.Load(), w.asked.Load()-w.served.Load())
		})
	}
}

// TestModelRefused checks that the picker answers 404 if every engine would refuse the name, after
// it has read the model lists again. Otherwise an engine answers.
func TestModelRefused(t *testing.T) {
	w := openTown(t, 2, 2, nil)
	confirms := func() float64 { return w.metric(0, "grapevine_models_confirms_total") }
	notFound := func(name string) bool {
		out := w.ask(name, false)
		var e struct{ Error struct{ Code string } }
		return out.status == http.StatusNotFound && out.engine == "" && json.Unmarshal([]byte(out.body), &e) == nil && e.Error.Code == "model_not_found"
	}
	before, begun := confirms(), time.Now()
	for range 5 {
		if !notFound("nobody") {
			t.Error("a model without an engine is not refused")
		}
	}
	if n := confirms() - before; n != 1 {
		t.Errorf("lists were confirmed %v times for one name", n)
	}
	if n := w.metric(0, `grapevine_picker_refusals_total{reason="model_not_found"}`); n != 5 {
		t.Errorf("%v refusals are counted", n)
	}
	if out := w.send(http.MethodGet, "/v1/models/nobody", ""); out.status != http.StatusNotFound || out.engine != "" || !strings.Contains(out.body, "model_not_found") {
		t.Errorf("asked for by name: %+v", out)
	}
	sick := w.fleet.Engines()[1]
	sick.SetFaults(faults.Faults{ListStatus: http.StatusInternalServerError})
	testkit.Await(t, "the list of one engine proves nothing any more", func() bool { return w.ask("nobody", false).engine == sick.Name() })
	if took := time.Since(begun); took < endpoint.ModelsFresh {
		t.Errorf("a list stopped to be proof within %v of being read", took)
	}
	sick.SetFaults(faults.Faults{})
	testkit.Await(t, "it is proof again", func() bool { return notFound("nobody") })
}

// TestModelPlaced checks that unknown names go to engines that accept any name, and to all engines
// if that is configured.
func TestModelPlaced(t *testing.T) {
	w := openTown(t, 2, 2, func(o *server.Options) { o.PlaceUnknown = true })
	if out := w.ask("nobody", false); out.status != http.StatusNotFound || out.engine == "" {
		t.Errorf("with --unknown-model place: %+v", out)
	}
	w.close()

	w = openTown(t, 2, 4, nil)
	list := w.fleet.Endpoints()
	if list[3].Labels == nil {
		list[3].Labels = map[string]string{}
	}
	list[3].Labels[endpoint.LabelEngine] = "sglang"
	w.write(list)
	testkit.Await(t, "the label is read", func() bool {
		return slices.ContainsFunc(w.servers[0].Status().Endpoints, func(e server.EndpointStatus) bool {
			return e.Name == list[3].Name && e.Facts.Labels[endpoint.LabelEngine] == "sglang"
		})
	})
	testkit.Await(t, "the engine is of a kind that takes any name", func() bool { return w.ask("nobody", false).engine == list[3].Name })
	for range 20 {
		if out := w.ask("nobody", false); out.engine != list[3].Name {
			t.Errorf("it went to %+v", out)
		}
		if out := w.ask(base(0), false); out.status != http.StatusOK || out.engine == list[3].Name {
			t.Errorf("what others are known to serve: %+v", out)
		}
	}
}
