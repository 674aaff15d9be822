package scrape

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
)

func TestParseSeries(t *testing.T) {
	f := func(s string, want Series) {
		t.Helper()
		got, err := ParseSeries(s)
		if err != nil {
			t.Errorf("%q: %v", s, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", s, diff)
		}
	}
	f("", Series{})
	f("vllm:queue", Series{Name: "vllm:queue"})
	f(` q{a=b, c = "d" ,}`, Series{Name: "q", Labels: []SeriesLabel{{"a", "b"}, {"c", "d"}}})
	f("q{}", Series{Name: "q"})
	for _, s := range []string{"1q", "q{", "q{a}", "q{a=}", "q{a=b}x", "{a=b}", "q r", "q{=b}"} {
		if got, err := ParseSeries(s); err == nil {
			t.Errorf("%q: %+v", s, got)
		}
	}
}

// series parses a series name that is known to be valid.
func series(t *testing.T, s string) Series {
	t.Helper()
	out, err := ParseSeries(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const ownPage = `# TYPE own_requests gauge
process_start_time_seconds 1.7e9
own_requests{state="waiting",rank="0"} 3
own_requests{state="waiting",rank="1"} 4
own_requests{state="running",rank="0"} 5
own_requests_total{state="waiting"} 900
own_use 0.25
own_cache{block_size="32",num_gpu_blocks="100"} 1
vllm:num_requests_waiting 77
`

func ownDialect(t *testing.T) Dialect {
	return Dialect{
		Name: "own", Waiting: series(t, "own_requests{state=waiting}"), Running: series(t, `own_requests{state="running"}`),
		Use: series(t, "own_use"), Cache: series(t, "own_cache"),
	}
}

// TestDialect reads a page by the configured names only.
func TestDialect(t *testing.T) {
	d := ownDialect(t)
	s := NewScanner()
	got, err := s.scan(strings.NewReader(ownPage), newOwnNames(&d), endpoint.EngineUnknown)
	want := Page{
		Gauges: endpoint.Gauges{
			Ranks: 1, Values: gauge.Values{Waiting: 7, Running: 5, KVUse: .25}, BlockSize: 32, Blocks: 100, Started: time.Unix(1_700_000_000, 0),
		},
		Bytes: len(ownPage),
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if got, err := s.Scan(strings.NewReader(ownPage), endpoint.EngineUnknown); err != nil || got.Waiting != 77 || got.Engine != endpoint.EngineVLLM {
		t.Errorf("by the built-in names afterwards: %+v %v", got, err)
	}
	own := newOwnNames(&d)
	if n := testing.AllocsPerRun(20, func() { _, _ = s.scan(strings.NewReader(ownPage), own, 0) }); n > 1 { // the reader
		t.Errorf("%v allocations", n)
	}
}

// TestDialectsOf: the label takes precedence over the default, and the default over the names on
// the page.
func TestDialectsOf(t *testing.T) {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	of := func(d *Dialects, labels ...string) (string, endpoint.EngineType) {
		spec := endpoint.Spec{Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Labels: map[string]string{}}
		for i := 0; i < len(labels); i += 2 {
			spec.Labels[labels[i]] = labels[i+1]
		}
		pool.Set([]endpoint.Spec{spec})
		own, engine := d.of(pool.Snapshot().Endpoints[0])
		if own == nil {
			return "", engine
		}
		return own.series[0].name, engine
	}
	own := ownDialect(t)
	vllm := Dialect{Name: "vllm", Waiting: series(t, "vllm:other")}
	std, alt := endpoint.LabelEngine, endpoint.LabelEngineAlt
	for _, tc := range []struct {
		d      *Dialects
		labels []string
		series string
		engine endpoint.EngineType
	}{
		{nil, nil, "", endpoint.EngineUnknown},
		{nil, []string{std, "sglang"}, "", endpoint.EngineSGLang},
		{nil, []string{alt, "sglang"}, "", endpoint.EngineSGLang},
		{NewDialects("", "", []Dialect{own}), nil, "", endpoint.EngineUnknown},
		{NewDialects("", "", []Dialect{own}), []string{std, "own"}, "own_requests", endpoint.EngineUnknown},
		{NewDialects("", "own", []Dialect{own}), nil, "own_requests", endpoint.EngineUnknown},
		{NewDialects("", "own", []Dialect{own}), []string{std, "trtllm-serve"}, "", endpoint.EngineTRTLLM},
		{NewDialects("", "vllm", nil), nil, "", endpoint.EngineUnknown},
		{NewDialects("", "", []Dialect{vllm}), []string{std, "vllm"}, "vllm:other", endpoint.EngineVLLM},
		{NewDialects("my", "", []Dialect{own}), []string{"my", "own", std, "vllm"}, "own_requests", endpoint.EngineUnknown},
		{NewDialects("my", "", []Dialect{own}), []string{"my", "sglang"}, "", endpoint.EngineSGLang},
		{NewDialects("my", "", []Dialect{own}), []string{std, "vllm"}, "", endpoint.EngineVLLM},
	} {
		if name, engine := of(tc.d, tc.labels...); name != tc.series || engine != tc.engine {
			t.Errorf("%+v %v: %q %v, want %q %v", tc.d, tc.labels, name, engine, tc.series, tc.engine)
		}
	}
}

// TestPollDialect: the poller uses the dialect's path and names, and follows a change of dialects.
func TestPollDialect(t *testing.T) {
	engine := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stats" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(ownPage))
	}))
	defer engine.Close()
	dialects := make(chan *Dialects, 1)
	dialects <- NewDialects("", "own", []Dialect{ownDialect(t)})
	current := func() *Dialects {
		d := <-dialects
		dialects <- d
		return d
	}
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	p, err := Open(Options{Slow: time.Millisecond, Fast: time.Millisecond, Scheme: "https", Path: "stats", TLS: &tls.Config{InsecureSkipVerify: true}, Dialects: current})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	pool.Subscribe(p.Apply)
	pool.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort(engine.Listener.Addr().String())}})
	ep := pool.Snapshot().Endpoints[0]
	sees := func(want int) {
		t.Helper()
		for end := time.Now().Add(testkit.HangTimeout); ep.Gauges().Waiting != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("gauges %+v, want %d waiting", ep.Gauges(), want)
			}
		}
	}
	sees(7)
	<-dialects
	dialects <- nil
	sees(77)
}
