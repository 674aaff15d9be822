package served

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// engines is a transport that simulates several engines.
type engines struct {
	mu    sync.Mutex
	lists map[string]string // address -> response; "": connection refused
	asked map[string]int
	slow  time.Duration

	versions map[string]string // address -> version; missing: 404
	pages    map[string]int    // address -> number of version requests
}

// RoundTrip implements http.RoundTripper.
func (e *engines) RoundTrip(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	if r.URL.Path != "/v1/models" {
		defer e.mu.Unlock()
		e.pages[r.URL.Host]++
		if v := e.versions[r.URL.Path+"@"+r.URL.Host]; v != "" {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"version":"` + v + `","more":[]}`))}, nil
		}
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
	}
	e.asked[r.URL.Host]++
	body, slow := e.lists[r.URL.Host], e.slow
	e.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if body == "" {
		return nil, net.ErrClosed
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func (e *engines) set(address, body string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lists[address] = body
}

func (e *engines) count(address string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked[address]
}

func vllm(names ...string) string {
	var cards []string
	for _, n := range names {
		cards = append(cards, `{"id":"`+n+`","owned_by":"vllm","parent":null}`)
	}
	return `{"object":"list","data":[` + strings.Join(cards, ",") + `]}`
}

// rig opens a reader over engines at 10.0.0.1:8000 and up, one per response.
func rig(t *testing.T, answers ...string) (*endpoint.Pool, *engines, *Reader, []string) {
	t.Helper()
	e := &engines{lists: map[string]string{}, asked: map[string]int{}, versions: map[string]string{}, pages: map[string]int{}}
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	var specs []endpoint.Spec
	var addrs []string
	for i, body := range answers {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 8000)
		specs, addrs = append(specs, endpoint.Spec{Name: addr.String(), Addr: addr}), append(addrs, addr.String())
		e.lists[addr.String()] = body
	}
	r, err := Open(Options{Pool: pool, Client: &http.Client{Transport: e}})
	if err != nil {
		t.Fatal(err)
	}
	pool.Subscribe(r.Changed)
	pool.Set(specs)
	synctest.Wait()
	return pool, e, r, addrs
}

func TestListsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, e, r, addrs := rig(t, vllm("llama", "llama-alias"), vllm("qwen"), "")
		defer r.Close()
		s := pool.Snapshot()
		if len(s.Serving("llama")) != 1 || len(s.Serving("llama-alias")) != 1 || len(s.Serving("qwen")) != 1 || len(s.Open()) != 1 {
			t.Errorf("llama at %v, qwen at %v, unknown %v", s.Serving("llama"), s.Serving("qwen"), s.Open())
		}
		e.set(addrs[1], vllm("qwen", "llama"))
		e.set(addrs[2], vllm("llama"))
		time.Sleep(defaultEvery + time.Second)
		synctest.Wait()
		if got := pool.Snapshot().Serving("llama"); len(got) != 3 {
			t.Errorf("llama at %v after the next reading", got)
		}
		e.set(addrs[0], "") // the last list of a failing engine stays
		time.Sleep(2 * defaultEvery)
		if got := pool.Snapshot().Serving("llama"); len(got) != 3 {
			t.Errorf("llama at %v while one engine does not answer", got)
		}
	})
}

// An unknown name costs one read of each list and counts as unknown for ten seconds. Other names
// cause at most four reads per second.
func TestConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, e, r, addrs := rig(t, vllm("llama"), vllm("qwen"))
		defer r.Close()
		time.Sleep(20 * time.Second)
		refused := func() (n int) {
			for _, ep := range pool.Snapshot().Endpoints {
				if ep.Refuses("adapter", time.Now()) {
					n++
				}
			}
			return n
		}
		if n := refused(); n != 0 {
			t.Errorf("%d old lists count as confirmed", n)
		}
		before := e.count(addrs[0])
		r.Confirm(context.Background(), "adapter")
		if n := refused(); n != 2 {
			t.Errorf("%d of 2 endpoints are known to reject the name", n)
		}
		for range 100 {
			r.Confirm(context.Background(), "adapter")
		}
		if n := e.count(addrs[0]) - before; n != 1 {
			t.Errorf("%d reads for one name", n)
		}
		e.set(addrs[0], vllm("llama", "adapter2"))
		time.Sleep(time.Second)
		r.Confirm(context.Background(), "adapter2") // the lists are recent, but the name is new
		if got := pool.Snapshot().Serving("adapter2"); len(got) != 1 {
			t.Errorf("a loaded adapter is served at %v", got)
		}
		before = e.count(addrs[0])
		begun := time.Now()
		var clients sync.WaitGroup
		for i := range 500 {
			clients.Go(func() {
				for k := range 10 {
					r.Confirm(context.Background(), fmt.Sprintf("no-such-%d-%d", i, k))
				}
			})
		}
		clients.Wait()
		if n, most := e.count(addrs[0])-before, 2+int(time.Since(begun)/pause); n > most {
			t.Errorf("%d reads within %v with unknown names", n, time.Since(begun))
		}
	})
}

func TestConfirmEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, e, r, _ := rig(t, vllm("llama"))
		defer r.Close()
		time.Sleep(20 * time.Second)
		e.mu.Lock()
		e.slow = time.Hour
		e.mu.Unlock()
		begun := time.Now()
		r.Confirm(context.Background(), "x")
		if took := time.Since(begun); took > defaultTimeout {
			t.Errorf("waited for %v", took)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		begun = time.Now()
		r.Confirm(ctx, "y")
		if took := time.Since(begun); took > 10*time.Millisecond {
			t.Errorf("waited for %v after the client had gone", took)
		}
	})
}

func TestModelIsReread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, e, r, addrs := rig(t, vllm("llama", "adapter"))
		defer r.Close()
		time.Sleep(time.Second)
		e.set(addrs[0], vllm("llama"))
		for range 50 {
			r.Recheck(pool.Snapshot().Endpoints[0].ID)
		}
		synctest.Wait()
		if pool.Snapshot().MayServe("adapter") || e.count(addrs[0]) != 2 {
			t.Errorf("%d readings; adapter still listed: %v", e.count(addrs[0]), pool.Snapshot().MayServe("adapter"))
		}
	})
}

func TestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _, r, _ := rig(t, `{"data":[{"id":"llama"},{"id":"poet","parent":"llama"}]}`, vllm("org/qwen"))
		defer r.Close()
		s, since := pool.Snapshot(), time.Unix(1000, 0)
		f := func(method, path, want string) {
			t.Helper()
			status, body, ok := Answer(s, method, path, since)
			if ok != (want != "") || ok && (status != 200 || string(body) != want || !json.Valid(body)) {
				t.Errorf("%s %s: %d %s", method, path, status, body)
			}
		}
		llama := `{"id":"llama","object":"model","created":1000,"owned_by":"grapevine","root":"llama","parent":null}`
		qwen := `{"id":"org/qwen","object":"model","created":1000,"owned_by":"grapevine","root":"org/qwen","parent":null}`
		poet := `{"id":"poet","object":"model","created":1000,"owned_by":"grapevine","root":"poet","parent":"llama"}`
		all := `{"object":"list","data":[` + llama + `,` + qwen + `,` + poet + `]}`
		f("GET", "/v1/models", all)
		f("GET", "/prefix/v1/models/", all)
		f("GET", "/v1/models/poet", poet)
		f("GET", "/v1/models/org%2Fqwen", qwen)
		f("GET", "/v1/models/org/qwen", qwen)
		f("POST", "/v1/models", "")
		f("GET", "/v1/modelsx", "")
		f("GET", "/v1/models/nobody", "")
		if _, _, ok := Answer(endpoint.NewPool(endpoint.PoolOptions{}).Snapshot(), "GET", "/v1/models", since); ok {
			t.Error("Answer() ok for an empty pool")
		}
		for i, length := range []int{8192, 4096} { // clients may rely on the smaller one
			pool.SetModels(s.Endpoints[i].ID, endpoint.ModelList{Models: []endpoint.Model{{Name: "llama", Length: length}}, Rejects: true}, since)
		}
		s = pool.Snapshot()
		f("GET", "/v1/models/llama", `{"id":"llama","object":"model","created":1000,"owned_by":"grapevine","root":"llama","parent":null,"max_model_len":4096}`)
		want := `{"error":{"message":"The model ` + "`nobody`" + ` does not exist.","type":"invalid_request_error","param":null,"code":"model_not_found"}}`
		if status, body, ok := Answer(s, "GET", "/v1/models/nobody", since); !ok || status != http.StatusNotFound || string(body) != want {
			t.Errorf("model that every engine rejects: %v %d %s", ok, status, body)
		}
	})
}

func TestDecode(t *testing.T) {
	f := func(data string, kind endpoint.EngineType, want int, rejects bool) {
		t.Helper()
		list, err := Decode([]byte(data), kind)
		if (err != nil) != (want < 0) || err == nil && (len(list.Models) != want || list.Rejects != rejects) {
			t.Errorf("%.60s: %d models, rejects %v, %v", data, len(list.Models), list.Rejects, err)
		}
	}
	for text, want := range map[string]int{`"max_model_len":40960`: 40960, `"max_model_len":null`: 0, `"max_model_len":"40960"`: 0, `"max_model_len":-1`: 0, `"x":1`: 0} {
		list, err := Decode([]byte(`{"data":[{"id":"a",`+text+`}]}`), endpoint.EngineVLLM)
		if err != nil || list.Length("a") != want {
			t.Errorf("%s: length %d, %v, want %d", text, list.Length("a"), err, want)
		}
	}
	f(vllm("a", "b"), endpoint.EngineUnknown, 2, true)
	f(vllm("a"), endpoint.EngineSGLang, 1, false)
	f(`{"data":[{"id":"a","owned_by":"sglang"}]}`, endpoint.EngineUnknown, 1, false)
	f(`{"data":[{"id":"a"}]}`, endpoint.EngineVLLM, 1, true)
	f(`{"data":[{"id":""},{"id":"`+strings.Repeat("x", maxName+1)+`"}]}`, endpoint.EngineVLLM, -1, false)
	f(`{"data":[]}`, endpoint.EngineVLLM, -1, false)
	f(`{"detail":"Not Found"}`, endpoint.EngineVLLM, -1, false)
	f(`nonsense`, endpoint.EngineVLLM, -1, false)
	f(`{"data":[`+strings.Repeat(`{"id":"a"},`, maxModels)+`{"id":"b"}]}`, endpoint.EngineVLLM, maxModels, false)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(vllm("a", "b")))
	f.Add([]byte(`{"data":[{"id":"a","parent":"a"},{"id":"a"}]}`))
	f.Add([]byte(`{"version":"0.33.0"}`))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, data []byte) {
		if v, err := decodeVersion(data); err == nil && (v == "" || len(v) > maxVersion) {
			t.Errorf("version %q", v)
		}
		var c cards
		if c.UnmarshalJSON(data) == nil && len(c) > maxModels+1 {
			t.Errorf("%d models are read", len(c))
		}
		list, err := Decode(data, endpoint.EngineUnknown)
		if err != nil {
			return
		}
		pool := endpoint.NewPool(endpoint.PoolOptions{})
		pool.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort("10.0.0.1:1")}})
		pool.SetModels(pool.Snapshot().Endpoints[0].ID, list, time.Unix(1, 0))
		for _, m := range list.Models {
			if !pool.Snapshot().Endpoints[0].Listed(m.Name) || len(pool.Snapshot().Serving(m.Name)) != 1 {
				t.Errorf("%q is listed but not served", m.Name)
			}
		}
	})
}

// TestReadSoon: a failed read is repeated soon, at first, and so is the list of an engine that
// restarted or changed its type.
func TestReadSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, e, r, addrs := rig(t, "", vllm("qwen"))
		defer r.Close()
		soon := func(what, name string, change func()) {
			t.Helper()
			change()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if len(pool.Snapshot().Serving(name)) != 1 {
				t.Errorf("%s: no endpoint is known to serve %s", what, name)
			}
		}
		soon("it started late", "llama", func() { e.set(addrs[0], vllm("llama")) })
		soon("it started again", "qwen3", func() {
			e.set(addrs[1], vllm("qwen3"))
			pool.Renew(pool.Snapshot().Lookup(addrs[1]))
		})
		e.set(addrs[0], "")
		r.Recheck(pool.Snapshot().Lookup(addrs[0]).ID)
		time.Sleep(5 * time.Minute)
		before := e.count(addrs[0])
		time.Sleep(5 * time.Minute)
		if n := e.count(addrs[0]) - before; n != int(5*time.Minute/defaultEvery) {
			t.Errorf("engine without a list is asked %d times in five minutes", n)
		}
	})
}
