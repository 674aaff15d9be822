package scrape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
)

// engines plays the engines of a fleet on a fake clock.
type engines struct {
	mu    sync.Mutex
	by    map[string]*engine
	start time.Time
}

type engine struct {
	page     string
	took     time.Duration // until the answer
	status   int
	err      error
	hits     []time.Duration // times of its readings, since the start
	inFlight int
	most     int // in flight at once
}

func newEngines() *engines { return &engines{by: map[string]*engine{}, start: time.Now()} }

func (e *engines) at(host string) *engine {
	if e.by[host] == nil {
		e.by[host] = &engine{page: "vllm:num_requests_waiting 0\nvllm:num_requests_running 1\n"}
	}
	return e.by[host]
}

// set changes an engine under the lock.
func (e *engines) set(host string, f func(*engine)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(e.at(host))
}

func (e *engines) RoundTrip(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	g := e.at(r.URL.Host)
	g.hits = append(g.hits, time.Since(e.start))
	g.inFlight++
	g.most = max(g.most, g.inFlight)
	took, err, status, page := g.took, g.err, g.status, g.page
	e.mu.Unlock()
	defer e.set(r.URL.Host, func(g *engine) { g.inFlight-- })
	select {
	case <-time.After(took):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if err != nil {
		return nil, err
	}
	if status == 0 {
		status = http.StatusOK
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(page))}, nil
}

// taken returns the times of the engine's readings since the last call.
func (e *engines) taken(host string) []time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.at(host)
	hits := g.hits
	g.hits = nil
	return hits
}

func fleetOf(hosts ...string) (*endpoint.Pool, []*endpoint.Endpoint) {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	var specs []endpoint.Spec
	for _, h := range hosts {
		specs = append(specs, endpoint.Spec{Addr: netip.MustParseAddrPort(h)})
	}
	return pool, pool.Set(specs).Snapshot.Endpoints
}

const hostA, hostB = "10.0.0.1:8000", "10.0.0.2:8000"

// fake runs a test with a poller of hosts in fake time.
func fake(t *testing.T, o Options, hosts []string, f func(*testing.T, *engines, *Poller, *endpoint.Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := newEngines()
		o.Transport = e
		p, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		pool, _ := fleetOf(hosts...)
		pool.Subscribe(p.Apply)
		f(t, e, p, pool)
		p.Close()
	})
}

// gaps checks that events lie between low and high of each other.
func gaps(t *testing.T, hits []time.Duration, low, high time.Duration) {
	t.Helper()
	for i := 1; i < len(hits); i++ {
		if d := hits[i] - hits[i-1]; d < low || d > high {
			t.Errorf("reading %d came after %v, want %v to %v", i, d, low, high)
		}
	}
}

func TestSlowAndFast(t *testing.T) {
	fake(t, Options{}, []string{hostA}, func(t *testing.T, e *engines, p *Poller, pool *endpoint.Pool) {
		ep := pool.Snapshot().Endpoints[0]
		time.Sleep(20 * time.Second)
		hits := e.taken(hostA)
		if len(hits) < 18 || len(hits) > 23 {
			t.Errorf("%d readings in 20 s", len(hits))
		}
		gaps(t, hits[1:], 990*time.Millisecond, 1010*time.Millisecond) // the first one looks for its slot
		if age, ok := ep.GaugeAge(time.Now()); !ok || age > 1130*time.Millisecond || ep.Gauges().Running != 1 {
			t.Errorf("sample %+v is %v old", ep.Gauges(), age)
		}

		e.set(hostA, func(g *engine) { g.page = "vllm:num_requests_waiting 5\n" })
		time.Sleep(1200 * time.Millisecond) // until the poller notices
		e.taken(hostA)
		time.Sleep(10 * time.Second)
		hits = e.taken(hostA)
		if len(hits) < 40 || len(hits) > 56 {
			t.Errorf("%d readings in 10 s of demand", len(hits))
		}
		gaps(t, hits, 180*time.Millisecond, 250*time.Millisecond)
		if s := p.Status()[0]; !s.Fast || s.State != StateOK || s.Page.Waiting != 5 {
			t.Errorf("status under demand: %+v", s)
		}
	})
}

// TestManyNearSaturation checks that endpoints near saturation share 100 fast readings a second,
// that only a few are read at the fast pace at a time, and that a requested pace applies to all.
func TestManyNearSaturation(t *testing.T) {
	var pace atomic.Int64
	o := Options{
		Pace:   func() time.Duration { return time.Duration(pace.Load()) },
		Demand: func(*endpoint.Endpoint) bool { return true },
	}
	for n, want := range map[int]float64{8: 40, 50: 100, 200: 200} {
		pace.Store(0)
		var hosts []string
		for i := range n {
			hosts = append(hosts, fmt.Sprintf("10.0.1.%d:8000", i))
		}
		fake(t, o, hosts, func(t *testing.T, e *engines, _ *Poller, _ *endpoint.Pool) {
			rate := func() (sum float64) {
				for _, h := range hosts {
					e.taken(h)
				}
				time.Sleep(10 * time.Second)
				for _, h := range hosts {
					sum += float64(len(e.taken(h))) / 10
				}
				return sum
			}
			time.Sleep(3 * time.Second)
			if got := rate(); got < .8*want || got > 1.15*want {
				t.Errorf("%d endpoints near saturation are read %.0f times a second, want about %.0f", n, got, want)
			}
			pace.Store(int64(100 * time.Millisecond))
			time.Sleep(3 * time.Second)
			if got, want := rate(), 10*float64(n); got < .75*want {
				t.Errorf("%d endpoints with a pace of 100 ms are read %.0f times a second, want about %.0f", n, got, want)
			}
		})
	}
}

// TestPace: a configured pace takes precedence over Fast, and may change.
func TestPace(t *testing.T) {
	var pace atomic.Int64
	o := Options{
		Pace:   func() time.Duration { return time.Duration(pace.Load()) },
		Demand: func(*endpoint.Endpoint) bool { return pace.Load() > 0 },
	}
	fake(t, o, []string{hostA}, func(t *testing.T, e *engines, _ *Poller, _ *endpoint.Pool) {
		time.Sleep(10 * time.Second)
		gaps(t, e.taken(hostA)[1:], 900*time.Millisecond, 1130*time.Millisecond)
		pace.Store(int64(50 * time.Millisecond))
		time.Sleep(time.Second)
		e.taken(hostA)
		time.Sleep(10 * time.Second)
		gaps(t, e.taken(hostA), 45*time.Millisecond, 65*time.Millisecond)
		pace.Store(0)
		time.Sleep(2 * time.Second)
		e.taken(hostA)
		time.Sleep(10 * time.Second)
		gaps(t, e.taken(hostA), 900*time.Millisecond, 1130*time.Millisecond)
	})
}

// TestDemandIsNoticed: a rise of the demand has an effect before the next slow reading.
func TestDemandIsNoticed(t *testing.T) {
	var mu sync.Mutex
	wanted := false
	demand := func(*endpoint.Endpoint) bool {
		mu.Lock()
		defer mu.Unlock()
		return wanted
	}
	fake(t, Options{Slow: time.Minute, Demand: demand}, []string{hostA}, func(t *testing.T, e *engines, _ *Poller, _ *endpoint.Pool) {
		time.Sleep(time.Second)
		e.taken(hostA)                 // at the start
		for len(e.taken(hostA)) == 0 { // until the next slow reading: when it is due depends on the start of the process
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		if n := len(e.taken(hostA)); n != 0 {
			t.Errorf("%d readings within 10 s without demand, want none", n)
		}
		mu.Lock()
		wanted = true
		mu.Unlock()
		time.Sleep(demandEvery + time.Millisecond)
		if n := len(e.taken(hostA)); n < 1 || n > 4 {
			t.Errorf("%d readings soon after the demand rose, want 1 to 4", n)
		}
	})
}

func TestFailures(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	reg := prometheus.NewRegistry()
	fake(t, Options{Registerer: reg}, []string{hostA, hostB}, func(t *testing.T, e *engines, p *Poller, pool *endpoint.Pool) {
		ep := pool.Snapshot().Endpoints[0]
		time.Sleep(time.Second)
		before := ep.Gauges().At
		e.set(hostA, func(g *engine) { g.err = refused })
		e.taken(hostA)
		time.Sleep(60 * time.Second)
		hits := e.taken(hostA)
		for i, want := range []int{1, 2, 4, 8, 10, 10} {
			gaps(t, hits[i:i+2], time.Duration(want*900)*time.Millisecond, time.Duration(want*1100+30)*time.Millisecond)
		}
		if !ep.Down() || !ep.Gauges().At.After(before.Add(-time.Second)) || ep.Gauges().At.After(before.Add(time.Second)) {
			t.Errorf("refused for a minute: down %v, sample of %v", ep.Down(), ep.Gauges().At)
		}
		if s := p.Status()[0]; s.State != StateFailing || s.Failures < 6 || !strings.Contains(s.Error, "refused") {
			t.Errorf("status: %+v", s)
		}
		if got := len(e.taken(hostB)); got < 55 {
			t.Errorf("the healthy neighbour was read %d times", got)
		}
		states := strings.NewReader("# HELP grapevine_scrape_endpoints Endpoints by the state of their metrics.\n# TYPE grapevine_scrape_endpoints gauge\n" +
			"grapevine_scrape_endpoints{state=\"failing\"} 1\ngrapevine_scrape_endpoints{state=\"ok\"} 1\ngrapevine_scrape_endpoints{state=\"pending\"} 0\n")
		if err := testutil.GatherAndCompare(reg, states, "grapevine_scrape_endpoints"); err != nil {
			t.Error(err)
		}

		e.set(hostA, func(g *engine) { g.err = nil })
		p.RefreshNow(ep)
		synctest.Wait()
		if s := p.Status()[0]; s.State != StateOK || s.Failures != 0 || ep.Down() {
			t.Errorf("after its return: %+v, down %v", s, ep.Down())
		}
	})
}

// TestAnswersMeanAlive: an endpoint with an unusable page still counts as answering.
func TestAnswersMeanAlive(t *testing.T) {
	fake(t, Options{}, []string{hostA}, func(t *testing.T, e *engines, p *Poller, pool *endpoint.Pool) {
		for _, c := range []struct {
			cause string
			f     func(*engine)
		}{
			{causeStatus, func(g *engine) { g.status = http.StatusNotFound }},
			{causeNoGauges, func(g *engine) { g.status, g.page = 0, "<html>" }},
			{causeBroken, func(g *engine) { g.err = io.ErrUnexpectedEOF }},
		} {
			e.set(hostA, c.f)
			_, err := p.Refresh(t.Context(), pool.Snapshot().Endpoints[0])
			if causeOf(err) != c.cause {
				t.Errorf("cause of %v is %s, want %s", err, causeOf(err), c.cause)
			}
		}
		time.Sleep(30 * time.Second)
		if pool.Snapshot().Endpoints[0].Down() {
			t.Error("marked as down though it answers")
		}
	})
}

// TestUselessPagesAreReadOn: for an endpoint without a metrics page, only its answers show that it
// is alive, so the readings must not become rarer.
func TestUselessPagesAreReadOn(t *testing.T) {
	fake(t, Options{}, []string{hostA}, func(t *testing.T, e *engines, p *Poller, pool *endpoint.Pool) {
		e.set(hostA, func(g *engine) { g.status = http.StatusNotFound })
		e.taken(hostA)
		time.Sleep(30 * time.Second)
		gaps(t, e.taken(hostA)[1:], 900*time.Millisecond, 1130*time.Millisecond)
	})
}

// TestReadingsShareInstants: endpoints of a small pool are read at the same instants, those of a large
// one at several, of which none has many.
func TestReadingsShareInstants(t *testing.T) {
	for n, want := range map[int]int{1: 1, 8: 1, 9: 2, 40: 5, 400: 20} {
		var hosts []string
		for i := range n {
			hosts = append(hosts, fmt.Sprintf("10.0.%d.%d:8000", i/256, i%256))
		}
		fake(t, Options{}, hosts, func(t *testing.T, e *engines, _ *Poller, _ *endpoint.Pool) {
			time.Sleep(5 * time.Second)
			for _, h := range hosts {
				e.taken(h)
			}
			time.Sleep(10 * time.Second)
			at := map[time.Duration]int{}
			for _, h := range hosts {
				hits := e.taken(h)
				if len(hits) != 10 {
					t.Fatalf("%d endpoints: %s was read %d times in 10 s, want 10", n, h, len(hits))
				}
				for _, d := range hits {
					at[d.Round(time.Millisecond)]++
				}
			}
			if got := len(at); got > 10*want {
				t.Errorf("%d endpoints are read at %d instants in 10 s, want at most %d", n, got, 10*want)
			}
			for d, k := range at {
				if most := max(n/want+1, together); k > most {
					t.Errorf("%d endpoints: %d are read at %v, want at most %d", n, k, d, most)
				}
			}
		})
	}
}

// trt serves JSON at /metrics, as trtllm-serve does, and its page at another path or not at all.
type trt struct {
	mu    sync.Mutex
	page  string         // at /prometheus/metrics; "": 404
	vllm  bool           // another engine has replaced it
	asked map[string]int // by path
}

func (e *trt) RoundTrip(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked[r.URL.Path]++
	answer := func(status int, kind, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
	switch usual := r.URL.Path == "/metrics"; {
	case usual && e.vllm:
		return answer(http.StatusOK, "text/plain", "vllm:num_requests_waiting 2\nvllm:num_requests_running 1\n")
	case usual:
		return answer(http.StatusOK, "application/json", `[{"iter":1,"numActiveRequests":7}]`)
	case e.vllm || e.page == "":
		return answer(http.StatusNotFound, "application/json", `{"detail":"Not Found"}`)
	}
	return answer(http.StatusOK, "text/plain", e.page)
}

// TestJSONIsNotThePage: if an engine's /metrics is JSON, the poller reads its other path from then
// on and does not consume the JSON. If an engine of another kind replaces it, the poller finds that
// engine's page.
func TestJSONIsNotThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &trt{page: "trtllm_num_requests_waiting 3\ntrtllm_num_requests_running 4\n", asked: map[string]int{}}
		p, err := Open(Options{Transport: e})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		pool, eps := fleetOf(hostA)
		pool.Subscribe(p.Apply)
		p.Apply(endpoint.Change{Added: eps})
		time.Sleep(30 * time.Second)
		if st := p.Status()[0]; eps[0].Gauges().Waiting != 3 || st.State != StateOK || st.Failures != 0 {
			t.Errorf("waiting %d, status %+v", eps[0].Gauges().Waiting, st)
		}
		e.mu.Lock()
		if e.asked["/metrics"] != 1 {
			t.Errorf("JSON was read %d times", e.asked["/metrics"])
		}
		e.page, e.asked = "", map[string]int{}
		e.mu.Unlock()
		time.Sleep(time.Minute)
		e.mu.Lock()
		if st := p.Status()[0]; st.State != StateFailing || !strings.Contains(st.Error, "return_perf_metrics") || e.asked["/metrics"] > 5 {
			t.Errorf("JSON read %d times, status %+v", e.asked["/metrics"], st)
		}
		e.vllm = true
		e.mu.Unlock()
		time.Sleep(time.Minute)
		if st := p.Status()[0]; eps[0].Gauges().Waiting != 2 || st.State != StateOK {
			t.Errorf("after vLLM took the place: waiting %d, status %+v", eps[0].Gauges().Waiting, st)
		}
	})
}

func TestNeverTwoInFlight(t *testing.T) {
	always := func(*endpoint.Endpoint) bool { return true }
	fake(t, Options{Demand: always}, []string{hostA}, func(t *testing.T, e *engines, p *Poller, pool *endpoint.Pool) {
		ep := pool.Snapshot().Endpoints[0]
		e.set(hostA, func(g *engine) { g.took = 300 * time.Millisecond })
		time.Sleep(15 * time.Second)
		hits := e.taken(hostA)
		gaps(t, hits[1:], 1500*time.Millisecond, 1500*time.Millisecond+defaultFast)

		e.set(hostA, func(g *engine) { g.took = time.Hour })
		for range 300 {
			p.RefreshNow(ep)
			time.Sleep(100 * time.Millisecond)
		}
		e.set(hostA, func(g *engine) {
			if g.most != 1 {
				t.Errorf("%d requests in flight at once", g.most)
			}
		})
		if s := p.Status()[0]; s.State != StateFailing || !strings.Contains(s.Error, "deadline") {
			t.Errorf("status of a hanging engine: %+v", s)
		}
		if ep.Down() {
			t.Error("marked as down for a slow page")
		}
	})
}

// TestRefreshBeginsAfterTheCall: a reading that started before the call does not count.
func TestRefreshBeginsAfterTheCall(t *testing.T) {
	fake(t, Options{}, []string{hostA}, func(t *testing.T, e *engines, p *Poller, pool *endpoint.Pool) {
		ep := pool.Snapshot().Endpoints[0]
		e.set(hostA, func(g *engine) {
			g.took, g.page = time.Second, "process_start_time_seconds 1\nvllm:num_requests_waiting 0\n"
		})
		time.Sleep(500 * time.Millisecond) // a reading is running
		e.set(hostA, func(g *engine) { g.page = "process_start_time_seconds 2\nvllm:num_requests_waiting 0\n" })
		page, err := p.Refresh(t.Context(), ep)
		if err != nil || page.Started.Unix() != 2 {
			t.Errorf("refreshed page: %+v, %v", page, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := p.Refresh(ctx, ep); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("impatient caller: %v", err)
		}
	})
}

// TestRefreshSoon: frequent refreshes do not read a slow page more often. A fast page, or the page
// of an engine that does not answer, is read soon.
func TestRefreshSoon(t *testing.T) {
	for _, c := range []struct {
		what        string
		took        time.Duration
		err         error
		least, most int // readings in ten seconds
	}{
		{"a slow page", 1500 * time.Millisecond, nil, 1, 2},
		{"a quick page", time.Millisecond, nil, 35, 52},
		{"nobody there", 0, io.ErrUnexpectedEOF, 35, 52},
	} {
		fake(t, Options{}, []string{hostA}, func(t *testing.T, e *engines, p *Poller, pool *endpoint.Pool) {
			before := 0
			e.set(hostA, func(g *engine) {
				g.took, g.err, g.page, before = c.took, c.err, "vllm:num_requests_waiting 0\n", len(g.hits)
			})
			for range 40 {
				p.RefreshSoon(pool.Snapshot().Endpoints[0])
				time.Sleep(250 * time.Millisecond)
			}
			e.set(hostA, func(g *engine) {
				if n := len(g.hits) - before; n < c.least || n > c.most { // some are regular readings
					t.Errorf("%s: %d readings", c.what, n)
				}
			})
		})
	}
}

// TestRestart: a later start time on the page is a new process; an earlier one is another process
// of the same engine.
func TestRestart(t *testing.T) {
	restarts := 0
	o := Options{OnRestart: func(*endpoint.Endpoint) { restarts++ }}
	fake(t, o, []string{hostA}, func(t *testing.T, e *engines, p *Poller, pool *endpoint.Pool) {
		for i, started := range []string{"100", "100", "101", "100.5", "101.2", "99", ""} {
			page := "vllm:num_requests_waiting 0\n"
			if started != "" {
				page += "process_start_time_seconds " + started + "\n"
			}
			e.set(hostA, func(g *engine) { g.page = page })
			if _, err := p.Refresh(t.Context(), pool.Snapshot().Endpoints[0]); err != nil {
				t.Fatal(err)
			}
			if want := min(i/2, 1); restarts != want {
				t.Errorf("after %q: %d restarts, want %d", started, restarts, want)
			}
		}
	})
}

func TestEndpointsComeAndGo(t *testing.T) {
	var pages sync.Map
	o := Options{OnPage: func(ep *endpoint.Endpoint, p Page) { pages.Store(ep.Address, p) }}
	fake(t, o, []string{hostA}, func(t *testing.T, e *engines, p *Poller, pool *endpoint.Pool) {
		a := pool.Snapshot().Endpoints[0]
		e.set(hostA, func(g *engine) { g.took = time.Second })
		time.Sleep(500 * time.Millisecond)
		gone := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := p.Refresh(t.Context(), a)
				gone <- err
			}()
		}
		synctest.Wait()
		pool.Set([]endpoint.Spec{{Addr: netip.MustParseAddrPort(hostB), Metrics: "http://user:secret@10.0.0.9:9400/m"}})
		for range 2 {
			if err := <-gone; !errors.Is(err, ErrNotPolled) {
				t.Errorf("refresh of an endpoint that went: %v", err)
			}
		}
		e.taken(hostA)
		time.Sleep(3 * time.Second)
		if n := len(e.taken(hostA)); n != 0 {
			t.Errorf("%d readings of an endpoint that went", n)
		}
		if n := len(e.taken("10.0.0.9:9400")); n < 3 {
			t.Errorf("%d readings at the address for metrics", n)
		}
		if _, ok := pages.Load(hostB); !ok {
			t.Error("OnPage was not called")
		}
		if _, err := p.Refresh(t.Context(), a); !errors.Is(err, ErrNotPolled) {
			t.Errorf("refresh after it went: %v", err)
		}
		if p.Status()[0].Address != hostB || len(p.Status()) != 1 {
			t.Errorf("status: %+v", p.Status())
		}
	})
}

// TestCloseAnswersEverybody: Close returns to every waiting caller, even during a reading.
func TestCloseAnswersEverybody(t *testing.T) {
	fake(t, Options{}, []string{hostA}, func(t *testing.T, e *engines, p *Poller, pool *endpoint.Pool) {
		e.set(hostA, func(g *engine) { g.took = time.Hour })
		time.Sleep(time.Second)
		told := make(chan error, 1)
		go func() {
			_, err := p.Refresh(t.Context(), pool.Snapshot().Endpoints[0])
			told <- err
		}()
		synctest.Wait()
		p.Close()
		if err := <-told; !errors.Is(err, ErrNotPolled) {
			t.Errorf("refresh at close: %v", err)
		}
	})
}

func TestAdaptersAreKept(t *testing.T) {
	fake(t, Options{}, []string{hostA}, func(t *testing.T, e *engines, p *Poller, pool *endpoint.Pool) {
		ep := pool.Snapshot().Endpoints[0]
		e.set(hostA, func(g *engine) { g.page = string(load(t, "vllm")) })
		time.Sleep(time.Second)
		first := ep.Gauges().LoRA
		time.Sleep(2 * time.Second)
		if first == nil || ep.Gauges().LoRA != first {
			t.Errorf("adapters %p became %p though they are the same", first, ep.Gauges().LoRA)
		}
		want := endpoint.Gauges{At: ep.Gauges().At, Engine: endpoint.EngineVLLM, Ranks: 1, Values: gauge.Values{Waiting: 3, Running: 12, KVUse: 0.4375},
			BlockSize: 16, Blocks: 27918, Started: time.UnixMilli(1763712345670), LoRA: first}
		if diff := gocmp.Diff(want, ep.Gauges()); diff != "" {
			t.Errorf("gauges (-want +got):\n%s", diff)
		}
	})
}

// TestHTTP reads from a real server: connections are kept, and hostile pages are bounded.
func TestHTTP(t *testing.T) {
	var mu sync.Mutex
	connections := 0
	mux := http.NewServeMux()
	var large bytes.Buffer
	noise(&large, 40)
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Write(large.Bytes())
		w.Write(load(t, "vllm"))
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		line := bytes.Repeat([]byte("x"), 1<<16)
		for r.Context().Err() == nil {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprintln(w, "vllm:num_requests_waiting 7")
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/metrics", http.StatusFound)
	})
	server := &http.Server{Handler: mux, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			mu.Lock()
			connections++
			mu.Unlock()
		}
	}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(ln)
	defer server.Close()

	p, err := Open(Options{Slow: time.Hour, Fast: time.Hour, MaxPage: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	at := ln.Addr().String()
	get := func(path string) (Page, error) {
		pool, eps := fleetOf(at)
		c := pool.Set([]endpoint.Spec{{Addr: eps[0].Addr, Metrics: "http://" + at + path}})
		p.Apply(c)
		return p.Refresh(t.Context(), c.Snapshot.Endpoints[0])
	}
	for range 20 {
		if page, err := get("/metrics"); err != nil || page.Running != 12 || page.Bytes < large.Len() {
			t.Fatalf("page: %+v, %v", page, err)
		}
	}
	mu.Lock()
	if connections != 1 {
		t.Errorf("%d connections for 20 readings", connections)
	}
	mu.Unlock()
	for path, want := range map[string]string{"/endless": causeTooLarge, "/cut": causeBroken, "/moved": causeStatus, "/none": causeStatus} {
		if _, err := get(path); causeOf(err) != want {
			t.Errorf("%s: %v is %s, want %s", path, err, causeOf(err), want)
		}
	}
	at = parts.FreeAddress(t) // held, so that no other process answers
	if _, err := get("/metrics"); causeOf(err) != causeDial {
		t.Errorf("refused connection: %v is %s, want %s", err, causeOf(err), causeDial)
	}
}

// TestLargePools: regular readings are at most 2,500 per second, and slow engines keep a longer interval.
func TestLargePools(t *testing.T) {
	for _, c := range []struct {
		slow      time.Duration
		endpoints int
		want      time.Duration
	}{{time.Second, 8, time.Second}, {time.Second, 2500, time.Second}, {time.Second, 10_000, 4 * time.Second}, {10 * time.Second, 10_000, 10 * time.Second}} {
		if got := (&Options{Slow: c.slow}).slowOf(c.endpoints); got != c.want {
			t.Errorf("interval of %d endpoints is %v, want %v", c.endpoints, got, c.want)
		}
	}
	var hosts []string
	for i := range 5000 {
		hosts = append(hosts, fmt.Sprintf("10.1.%d.%d:8000", i/256, i%256))
	}
	fake(t, Options{}, hosts, func(t *testing.T, e *engines, _ *Poller, _ *endpoint.Pool) {
		time.Sleep(4 * time.Second)
		for _, h := range hosts {
			e.taken(h)
		}
		time.Sleep(4 * time.Second)
		n := 0
		for _, h := range hosts {
			n += len(e.taken(h))
		}
		if n < 9500 || n > 10_500 {
			t.Errorf("%d readings in 4 s, want 10,000", n)
		}
	})
}
