package extproc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestEnvoyAborts: mixed requests, one in twenty aborted by its client at a
// random moment. Every other answer is right, nothing stays in flight, no
// goroutine is left.
func TestEnvoyAborts(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override}})
			var n, aborted atomic.Int64
			var wg sync.WaitGroup
			for worker := range 16 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(7, uint64(worker)))
					for n.Add(1) <= 1000 {
						c := anyCall(rng)
						if rng.IntN(20) > 0 {
							r.check(c)
							continue
						}
						aborted.Add(1)
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(12_000))*time.Microsecond)
						_, _, _ = r.do(ctx, c) // it may end before the abort
						cancel()
					}
				})
			}
			wg.Wait()
			r.book.settle(t)
			r.clean()
			r.envoy.Stop()
			stopPicker(t, r.picker)
			r.engine.Close()
			r.client.CloseIdleConnections()
			testkit.Await(t, "goroutines back to the start value", func() bool { return runtime.NumGoroutine() <= before })
			t.Logf("%d aborted", aborted.Load())
		})
	}
}

// anyCall is a request of 1 KB to 1 MB, small ones more often.
func anyCall(rng *rand.Rand) call {
	c := call{size: 1 << (10 + rng.IntN(6)), model: "m", stream: rng.IntN(2) == 0, answer: 1 + rng.IntN(50)}
	if rng.IntN(20) == 0 {
		c.size = 1 << 20
	}
	if !c.stream {
		c.answer *= 500
	}
	return c
}

// TestEnvoyRefusals: the client's view of an answer from the picker.
func TestEnvoyRefusals(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{MaxBody: 100_000}})
			r.book.refuse = map[string]request.Reason{"busy": request.ReasonSaturated, "empty": request.ReasonNoEndpoints, "unknown": request.ReasonModelNotFound}
			r.refused(call{size: 500, model: "busy"}, 429, "rejected-saturated")
			r.refused(call{size: 500, model: "empty"}, 503, "rejected-no-endpoints")
			r.refused(call{size: 500, model: "unknown"}, 404, "rejected-model-not-found")
			broken := func(p []byte) io.Reader { return bytes.NewReader(p[:len(p)-1]) }
			r.refused(call{size: 500, model: "m", reader: broken}, 400, "rejected-bad-request")
			r.refused(call{size: 200_000, model: "m"}, 413, "rejected-too-large")
			undeclared := func(p []byte) io.Reader { return io.MultiReader(bytes.NewReader(p)) }
			r.refused(call{size: 200_000, model: "m", reader: undeclared}, 413, "rejected-too-large")
			r.check(call{size: 50_000, model: "m"})
			r.book.settle(t)
			if n := r.envoy.Stats(t, "ext_proc.picker.")["http.inference.ext_proc.picker.spurious_msgs_received"]; n != 0 {
				t.Errorf("%d spurious messages", n)
			}
		})
	}
}

// TestLaterFilters: a later filter asks a picker only about requests that got no answer before it. It then reports
// the response, like the first one. A refusal by the first filter opens no further stream.
func TestLaterFilters(t *testing.T) {
	for name, override := range map[string]bool{"with override": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: envoyconf.Params{Kind: envoyconf.Resilient}, options: extproc.Options{AllowModeOverride: override}})
			r.book.wantBody = true
			r.book.refuse = map[string]request.Reason{"busy": request.ReasonSaturated}
			const refused = 10
			for range refused {
				r.refused(call{size: 500, model: "busy"}, 429, "rejected-saturated")
			}
			calls := []call{{size: 30_000, model: "m", answer: 50, stream: true}, {size: 30_000, model: "m", answer: 500}, {answer: 100}}
			for leaves := range 3 {
				for _, c := range calls {
					r.book.set(func(b *book) { b.leaves = leaves })
					r.check(c)
				}
			}
			r.book.settle(t)
			for i, want := range []int64{refused + 9, 6, 3} {
				stat := "http.inference.ext_proc." + []string{"picker", "picker_second", "picker_third"}[i]
				stats := r.envoy.Stats(t, "ext_proc.")
				if got := stats[stat+".streams_started"]; int64(got) != want {
					t.Errorf("%s: %d streams, want %d", stat, got, want)
				}
				if n := stats[stat+".spurious_msgs_received"]; n != 0 {
					t.Errorf("%s: %d spurious messages", stat, n)
				}
			}
			r.book.set(func(b *book) {
				if len(b.outcomes) != 9 {
					t.Fatalf("%d outcomes, want 9", len(b.outcomes))
				}
				for i, o := range b.outcomes {
					if first := b.outcomes[i%3]; o.Status != 200 || o.Served == "" || o.Usage.OutputTokens != first.Usage.OutputTokens || o.Usage.Seen != first.Usage.Seen {
						t.Errorf("request %d, asked again %d times: %+v, want what the first filter reports, %+v", i, i/3, o, first)
					}
				}
			})
		})
	}
}

func (r *rig) refused(c call, status int, drop string) {
	r.t.Helper()
	resp, body, err := r.do(context.Background(), c)
	if err != nil {
		r.t.Errorf("%+v: %v", c, err)
		return
	}
	var e struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal(body, &e); err != nil || e.Error.Message == "" || e.Error.Type == "" || e.Error.Code == "" {
		r.t.Errorf("%+v: body %s is not an error object: %v", c, body, err)
	}
	if resp.StatusCode != status || resp.Header.Get("x-llm-d-request-dropped-reason") != drop ||
		resp.Header.Get("content-type") != "application/json" || (resp.Header.Get("retry-after") != "") != (drop == "rejected-no-endpoints") {
		r.t.Errorf("%+v: status %d, %v, want %d and %s", c, resp.StatusCode, resp.Header, status, drop)
	}
}

// TestEnvoyFallbacks: if the first endpoint refuses connections, the request is sent to the
// decision's next one.
func TestEnvoyFallbacks(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			dead := []string{parts.FreeAddress(t), parts.FreeAddress(t)} // without listeners
			s.params.Endpoints = dead
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override}})
			alive := r.book.endpoints[0]
			r.book.endpoints = []string{dead[0], dead[1], alive}
			for range 10 {
				r.check(call{size: 30_000, model: "m", answer: 100})
				r.check(call{answer: 100})
			}
			r.book.settle(t)
			r.book.set(func(b *book) {
				for _, o := range b.outcomes {
					if o.Served != alive {
						t.Errorf("served by %q, want %q", o.Served, alive)
					}
				}
			})
			r.clean()
		})
	}
}

// TestEnvoyPartial: if a body is larger than Envoy's buffer, the picker sees the beginning, and the
// engine gets the whole body.
func TestEnvoyPartial(t *testing.T) {
	r := newRig(t, rigOptions{
		params:  envoyconf.Params{RequestBody: "BUFFERED_PARTIAL", BodyLimit: 64 << 10},
		options: extproc.Options{AllowModeOverride: true},
	})
	for _, name := range []string{"", "another"} {
		r.book.set(func(b *book) { b.rename = name })
		for range 5 {
			r.check(call{size: 1 << 20, model: "m", answer: 10})
		}
	}
	r.book.settle(t)
	r.clean()
	for _, q := range r.book.requests {
		if q.Model != "m" || len(q.Body) == 0 || len(q.Body) >= 1<<20 {
			t.Errorf("placed with model %q by %d bytes", q.Model, len(q.Body))
		}
	}
}

// TestEnvoyAnswerHeaders: a decision's response headers reach the client, once, even if they are
// sent together with a change of the body mode.
func TestEnvoyAnswerHeaders(t *testing.T) {
	for _, s := range shapes()[:3] {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params, options: extproc.Options{AllowModeOverride: s.override}})
			r.book.set(func(b *book) {
				b.wantBody, b.answer = true, []request.HeaderSet{{Name: "x-session-token", Value: "bnMvYQ=="}, {Name: "content-language", Value: "en"}}
			})
			for _, c := range []call{{size: 1000, model: "m", answer: 10}, {size: 1000, model: "m", answer: 10, stream: true}} {
				resp, body, err := r.do(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				if h := resp.Header; len(body) == 0 || len(h["X-Session-Token"]) != 1 || h.Get("x-session-token") != "bnMvYQ==" || h.Get("content-language") != "en" {
					t.Errorf("%d bytes, headers %v", len(body), h)
				}
			}
			r.book.settle(t)
			r.clean()
		})
	}
}

// TestEnvoyObserve: in observability mode the picker sees and counts everything, and changes
// nothing.
func TestEnvoyObserve(t *testing.T) {
	r := newRig(t, rigOptions{params: envoyconf.Params{RequestBody: "STREAMED", ResponseBody: "STREAMED", Observe: true}})
	r.book.set(func(b *book) { b.endpoints = []string{"127.0.0.1:1"} }) // where it would be sent
	for range 5 {
		r.check(call{size: 50_000, model: "m", answer: 10, stream: true})
	}
	testkit.Await(t, "five outcomes", func() (ok bool) {
		r.book.set(func(b *book) { ok = len(b.outcomes) == 5 })
		return ok
	})
	r.book.set(func(b *book) {
		for i, o := range b.outcomes {
			if o.Status != 200 || o.Usage.OutputTokens != 10 || b.requests[i].Model != "m" {
				t.Errorf("outcome %+v of %+v", o, b.requests[i].Model)
			}
		}
	})
}

const steadyClients = 8

// crowd is clients that send one request after the other.
type crowd struct {
	t        *testing.T
	ok, bad  atomic.Int64
	stopping atomic.Bool
	wg       sync.WaitGroup
}

func (r *rig) crowd() *crowd {
	c := &crowd{t: r.t}
	for worker := range steadyClients {
		c.wg.Go(func() { c.send(r, rand.New(rand.NewPCG(3, uint64(worker)))) })
	}
	return c
}

func (c *crowd) send(r *rig, rng *rand.Rand) {
	for !c.stopping.Load() {
		q := anyCall(rng)
		q.header = map[string]string{"x-pace": "4ms"}
		resp, body, err := r.do(context.Background(), q)
		want := objectAnswer(q.answer)
		if q.stream {
			want = eventAnswer(q.answer)
		}
		if err == nil && resp.StatusCode == http.StatusOK && bytes.Equal(body, want) {
			c.ok.Add(1)
		} else {
			c.bad.Add(1)
		}
	}
}

// answered waits until n more requests have been answered.
func (c *crowd) answered(n int64) {
	c.t.Helper()
	for until := c.ok.Load() + n; c.ok.Load() < until; {
		before := c.ok.Load()
		testkit.Await(c.t, "an answer", func() bool { return c.ok.Load() > before })
	}
}

// end sends no more requests, waits for the answers, and returns how many
// requests failed.
func (c *crowd) end() (failed int64) {
	c.stopping.Store(true)
	c.wg.Wait()
	return c.bad.Load()
}

// TestEnvoyPickerKilled: pickers die by kill -9 one after the other under
// load. In the resilient configuration no request fails, even with none left.
func TestEnvoyPickerKilled(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			r := killRig(t, s)
			load := r.crowd()
			load.answered(20)
			r.children[0].kill()
			load.answered(30)
			if s.params.Kind != envoyconf.Gateway { // at least one must be left
				r.children[1].kill()
			}
			load.answered(30)
			failed := load.end()
			t.Logf("%s: %d failed, stats %v", s.name, failed, faults(r))
			if s.params.Kind == envoyconf.Resilient && failed > 0 {
				t.Errorf("%d requests failed", failed)
			}
			if failed > 2*steadyClients {
				t.Errorf("%d requests failed, more than can have been in flight", failed)
			}
			for range 20 {
				r.check(call{size: 1000, model: "m", answer: 10})
			}
		})
	}
}

// TestEnvoyMovesWaitingRequests: requests of any size wait at a picker that is killed. Another
// picker decides about them, with their whole bodies and the time that they have waited.
func TestEnvoyMovesWaitingRequests(t *testing.T) {
	for _, s := range []shape{
		{name: "resilient", params: envoyconf.Params{Kind: envoyconf.Resilient}},
		{name: "fails closed", params: envoyconf.Params{Kind: envoyconf.Resilient, FailClosed: true}},
	} {
		t.Run(s.name, func(t *testing.T) {
			c := startChild(t, "127.0.0.1:1", childWaits+"=1")
			s.params.ExtProc = []string{c.addr}
			r := newRig(t, rigOptions{params: s.params, tls: listen.TLS{Plaintext: true}})
			healthy := func(n int) {
				const stat = "cluster.pickers.membership_healthy"
				testkit.Await(t, "Envoy's health checks", func() bool { return r.envoy.Stats(t, stat)[stat] == n })
			}
			healthy(2)
			r.ready.Set(false)
			healthy(1)
			var wg sync.WaitGroup
			sizes := []int{0, 1 << 10, 40 << 10, 100 << 10, 1 << 20, 4 << 20}
			const claimed = "1800000" // by clients: a header of this name has no effect
			for _, size := range sizes {
				wg.Go(func() {
					r.check(call{size: size, model: "m", answer: 100, header: map[string]string{request.MetadataWaited: claimed}})
				})
			}
			const active = "cluster.pickers.upstream_rq_active"
			testkit.Await(t, "all requests wait", func() bool { return r.envoy.Stats(t, active)[active] == len(sizes) })
			r.ready.Set(true)
			healthy(2)
			c.kill()
			wg.Wait()
			r.book.settle(t)
			r.book.set(func(b *book) {
				if len(b.requests) != len(sizes) {
					t.Errorf("%d requests were decided, want %d", len(b.requests), len(sizes))
				}
				for _, q := range b.requests {
					// Without a body the same stream is sent again, with the metadata of its beginning.
					if len(q.Body) > 0 && q.Waited < 10*time.Millisecond || q.Waited > time.Minute {
						t.Errorf("a request of %d bytes has waited %v", len(q.Body), q.Waited)
					}
				}
			})
		})
	}
}

// TestEnvoyClientsClaimNothing: headers that clients send under the names of the stream's metadata
// have no effect in the shipped configurations. The age of a request is Envoy's own figure.
func TestEnvoyClientsClaimNothing(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params})
			for _, prefix := range []string{"", "grpc-metadata-", "x-envoy-"} {
				r.check(call{size: 1000, model: "m", answer: 10, header: map[string]string{
					prefix + request.MetadataWaited: "1800000", prefix + request.MetadataMoves: "1", prefix + request.MetadataImport: "other/pool",
				}})
			}
			r.book.settle(t)
			r.book.set(func(b *book) {
				for _, q := range b.requests {
					if moves := s.params.Kind == envoyconf.Resilient; q.Waited > time.Minute || q.Moves != moves || q.Import != "" {
						t.Errorf("waited %v, moves %v, import %q; want a short time, %v and none", q.Waited, q.Moves, q.Import, moves)
					}
				}
				if len(b.requests) != 3 {
					t.Errorf("%d requests were decided, want 3", len(b.requests))
				}
			})
		})
	}
}

// TestEnvoyPickerHangs: a picker that hangs delays the requests that it holds
// by the message timeout, and fails none.
func TestEnvoyPickerHangs(t *testing.T) {
	t.Parallel()
	s := shape{params: envoyconf.Params{Kind: envoyconf.Resilient, MessageTimeout: time.Second}}
	r := killRig(t, s)
	load := r.crowd()
	load.answered(20)
	t.Cleanup(r.children[0].kill) // a stopped process does not end by itself
	_ = r.children[0].cmd.Process.Signal(syscall.SIGSTOP)
	testkit.Await(t, "requests wait in vain", func() bool { return faults(r)["message_timeouts"] > 0 })
	load.answered(20)
	if failed := load.end(); failed > 0 {
		t.Errorf("%d failed, stats %v", failed, faults(r))
	}
}

// killable is a rig whose pickers are processes.
type killable struct {
	*rig
	children []*child
}

func killRig(t *testing.T, s shape) *killable {
	t.Helper()
	k := &killable{rig: &rig{t: t, book: &book{}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}}
	k.startEngine()
	address := strings.TrimPrefix(k.engine.URL, "http://")
	p := s.params
	for range 2 {
		c := startChild(t, address)
		k.children = append(k.children, c)
		p.ExtProc = append(p.ExtProc, c.addr)
	}
	p.Endpoints, p.Plaintext = []string{address}, true
	k.startEnvoy(p)
	return k
}

func faults(r *killable) map[string]int {
	out := map[string]int{}
	for name, n := range r.envoy.Stats(r.t, "ext_proc.picker.") {
		if n > 0 {
			out[strings.TrimPrefix(name, "http.inference.ext_proc.picker.")] = n
		}
	}
	return out
}

// TestEnvoyPickerStops: a replica that stops in good order, under load, fails no request, in either
// configuration.
func TestEnvoyPickerStops(t *testing.T) {
	t.Parallel()
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			second := &book{}
			other, _ := openPicker(t, second, rigOptions{tls: listen.TLS{Plaintext: true}})
			s.params.ExtProc = []string{other.Addr().String()}
			r := newRig(t, rigOptions{params: s.params, tls: listen.TLS{Plaintext: true}, linger: 100 * time.Millisecond})
			second.set(func(b *book) { b.endpoints = r.book.endpoints })
			load := r.crowd()
			load.answered(20)
			// Wait as Linger does, but for as long as the health checks take here.
			r.ready.Set(false)
			const stat = "cluster.pickers.membership_healthy"
			testkit.Await(t, "Envoy knows", func() bool { return r.envoy.Stats(t, stat)[stat] == 1 })
			stopPicker(t, r.picker)
			load.answered(20)
			if failed := load.end(); failed > 0 {
				t.Errorf("%d failed", failed)
			}
			r.book.settle(t)
			second.settle(t)
			r.clean()
		})
	}
}

var errStall = errors.New("stalled")

// stallingReader delivers half of a body and then fails, as a client does that
// is cut off.
func stallingReader(p []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(p[:len(p)/2]), failingReader{})
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errStall }

// TestEnvoyCutOff: a client that is cut off in the middle of its request leaves no state behind.
func TestEnvoyCutOff(t *testing.T) {
	for _, s := range shapes()[:2] {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, rigOptions{params: s.params})
			for range 20 {
				if _, _, err := r.do(context.Background(), call{size: 100_000, model: "m", reader: stallingReader}); err == nil {
					t.Error("half a request was answered")
				}
			}
			r.check(call{size: 1000, model: "m"})
			r.book.settle(t)
			if len(r.book.requests) != 1 {
				t.Errorf("%d requests were placed, want 1", len(r.book.requests))
			}
			r.clean()
		})
	}
}
