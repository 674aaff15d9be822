package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/lab/answer"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

var (
	pdRequests = flag.Int("pd.requests", 300, "requests of TestPDChaos")
	pdSeed     = flag.Uint64("pd.seed", 1, "of the faults and requests of TestPDChaos")
)

// pdRig is a rig whose first engines prefill. Its other engines decode, each behind a sidecar.
type pdRig struct {
	*rig
	prefill, decode []*sim.Engine
	sidecars        []*http.Server
	leg             time.Duration        // timeout of a prefill
	counts          *prometheus.Registry // of all sidecars
	tracer          *tracing.Tracer      // of all sidecars; nil unless the environment configures it
	serving         sync.WaitGroup

	mu    sync.Mutex
	named map[[2]string]int // requests by a prefill endpoint that they name, "" for none, and the sidecar
}

// pdLease is the lease of transferred blocks. The last third is for the time between the sidecar's
// check and the decode engine's read, which takes seconds on a busy machine.
const pdLease = 12 * time.Second

// openPD opens a rig whose sidecars have the given prefill timeout.
func openPD(t *testing.T, prefill, decode int, leg time.Duration) *pdRig {
	t.Helper()
	return openPDBehind(t, prefill, decode, leg, func(_ int, engine string) string { return engine }, rigOptions{})
}

// openPDBehind opens a rig whose prefill engine i is reached at the address that front returns. Of
// the options, those of Envoy count.
func openPDBehind(t *testing.T, prefill, decode int, leg time.Duration, front func(i int, engine string) string, o rigOptions) *pdRig {
	t.Helper()
	r := &pdRig{rig: begin(t), named: map[[2]string]int{}, leg: leg, counts: prometheus.NewRegistry(), tracer: tracing.Open(tracing.Options{Service: "grapevine-sidecar"})}
	t.Cleanup(r.closePD)
	r.openFleet(rigOptions{engines: prefill + decode, engine: sim.Options{Speed: 5, PD: &sim.PDOptions{Lease: pdLease, Handshake: 300 * time.Millisecond}}})
	all := r.fleet.Engines()
	r.prefill, r.decode = all[:prefill], all[prefill:]
	list := r.fleet.Endpoints()
	allowed := sidecar.Listed{}
	for i, e := range r.prefill {
		at := front(i, e.Addr())
		list[i].Labels[endpoint.LabelRole], list[i].Port = "prefill", portOf(t, at)
		allowed[at] = endpoint.RolePrefill
	}
	for i, e := range r.decode {
		at := &list[prefill+i]
		at.Labels[endpoint.LabelRole] = "decode"
		front := r.openSidecar(e, allowed)
		r.front = append(r.front, front)
		at.Port = portOf(t, front)
	}
	r.write(list)
	r.openReplica(config(t, testkit.SplitAll))
	r.openEnvoy(o)
	return r
}

// portOf returns the port of an address.
func portOf(t *testing.T, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// openSidecar runs the proxy of a decode engine and returns its address.
func (r *pdRig) openSidecar(e *sim.Engine, allowed sidecar.Listed) string {
	r.t.Helper()
	h, err := sidecar.New(sidecar.Options{
		Engine: "http://" + e.Addr(), Targets: allowed, KVTransfer: kvtransfer.Policy{Action: kvtransfer.Strip},
		Lease: pdLease, Prefill: r.leg, Head: patience, Tracer: r.tracer,
		Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"engine": e.Name()}, r.counts),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	at := l.Addr().String()
	r.serve(&http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for prefill := range strings.SplitSeq(req.Header.Get(request.HeaderPrefiller), ",") {
			r.mu.Lock()
			r.named[[2]string{prefill, at}]++
			r.mu.Unlock()
		}
		h.ServeHTTP(w, req)
	})}, l)
	return l.Addr().String()
}

// serve runs a sidecar's server until the rig closes.
func (r *pdRig) serve(s *http.Server, l net.Listener) {
	r.sidecars = append(r.sidecars, s)
	r.serving.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			r.t.Error(err)
		}
	})
}

func (r *pdRig) closePD() {
	if r.closed {
		return
	}
	if r.client != nil {
		r.client.Close()
		r.envoy.Stop()
	}
	for _, s := range r.sidecars {
		_ = s.Close() // clients' open connections are cut
	}
	r.serving.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r.tracer.Close(ctx)
	r.close()
}

// TestPDChaos checks that faults of prefill engines, decode engines and clients lead to no wrong
// answer, that every request that can be served is served, and that no state remains.
func TestPDChaos(t *testing.T) {
	r := openPD(t, 3, 3, 500*time.Millisecond)
	c := &chaosClient{r: r, words: vocab.New()}
	stop := make(chan struct{})
	var faults, clients sync.WaitGroup
	faults.Go(func() { r.trouble(rand.New(rand.NewPCG(*pdSeed, 1)), c, stop) })
	const workers = 8
	var next atomic.Int64
	for w := range workers {
		rng := rand.New(rand.NewPCG(*pdSeed, uint64(w)+2))
		clients.Go(func() {
			begun := time.Now()
			for n := next.Add(1); n <= int64(*pdRequests) || !r.sawAll() && time.Since(begun) < testkit.HangTimeout; n = next.Add(1) {
				c.send(rng, int(n))
			}
		})
	}
	clients.Wait()
	close(stop)
	faults.Wait()
	if t.Logf("prefill legs: %v", r.legs()); !r.sawAll() {
		t.Error("that is not what was to be seen")
	}
	t.Logf("%d right, %d given up by their clients, %d broken off, %d of them with no restart about, %d not served during one; prefill engines: %s",
		c.right.Load(), c.left.Load(), c.broken.Load(), c.calm.Load(), c.unserved.Load(), r.figures())
	if n := c.unserved.Load(); n > 2+int64(*pdRequests)/1000 {
		t.Errorf("%d requests found no decode engine while one of three restarted", n)
	}
	// An answer can break only after the sidecar has sent content.
	if begun := r.counted("grapevine_sidecar_broken_total", "")[""]; c.broken.Load() > int64(begun) {
		t.Errorf("%d answers were broken off, and only %d had begun: the others could have been served", c.broken.Load(), begun)
	}
	if c.right.Load() < int64(*pdRequests)/5 {
		t.Errorf("only %d of %d requests were answered", c.right.Load(), *pdRequests)
	}
	calm, more := rand.New(rand.NewPCG(*pdSeed, 0)), int(next.Load())
	testkit.Await(t, "a prompt is handed over after the last restart", func() bool {
		more++
		c.send(calm, more)
		return slices.ContainsFunc(r.prefill, func(e *sim.Engine) bool { return e.Transfers().Read > 0 })
	})
	r.settle()
	testkit.Await(t, "no blocks are kept for anybody", func() bool {
		held := int64(0)
		for _, e := range r.fleet.Engines() {
			held += e.Transfers().Held
		}
		return held == 0
	})
	for _, e := range r.decode {
		if n := e.Transfers().Wrong; n > 0 {
			t.Errorf("%d reads of freed blocks", n)
		}
	}
}

// sawAll reports whether prefills ended well, and in at least two other ways.
func (r *pdRig) sawAll() bool {
	legs := r.legs()
	return legs["ok"] > 0 && len(legs) >= 3
}

// legs counts prefills by outcome.
func (r *pdRig) legs() map[string]int {
	return r.counted("grapevine_sidecar_prefills_total", "outcome")
}

// counted returns the sum of a counter over all sidecars by a label; "" sums all labels.
func (r *pdRig) counted(name, label string) map[string]int {
	r.t.Helper()
	families, err := r.counts.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]int{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			value := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == label {
					value = l.GetValue()
				}
			}
			out[value] += int(m.GetCounter().GetValue())
		}
	}
	return out
}

func (r *pdRig) figures() string {
	var out []string
	for _, e := range r.prefill {
		out = append(out, fmt.Sprintf("%+v", e.Transfers()))
	}
	return strings.Join(out, " ")
}

// trouble applies faults to one engine after the other until stop is closed.
func (r *pdRig) trouble(rng *rand.Rand, c *chaosClient, stop chan struct{}) {
	rest := func(d time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(d):
			return true
		}
	}
	for rest(time.Duration(5+rng.IntN(30)) * time.Millisecond) {
		e, length := r.prefill[rng.IntN(len(r.prefill))], time.Duration(50+rng.IntN(250))*time.Millisecond
		switch rng.IntN(7) {
		case 0:
			e.SetFaults(faults.Faults{Hang: faults.HangAll})
		case 1:
			e.SetFaults(faults.Faults{ErrorShare: 1, ErrorStatus: 500 + rng.IntN(4)})
		case 2:
			e.SetFaults(faults.Faults{Garbage: true})
		case 3:
			e.SetFaults(faults.Faults{Slow: 1000})
		case 4:
			e.SetFaults(faults.Faults{ResetShare: .5})
		case 5:
			r.restart(e, length)
		case 6:
			c.shaken.Add(1)
			r.restart(r.decode[rng.IntN(len(r.decode))], length/2)
			c.shaken.Add(1)
		}
		rest(length)
		e.SetFaults(faults.Faults{})
	}
}

func (r *pdRig) restart(e *sim.Engine, down time.Duration) {
	if err := e.Restart(sim.RestartOptions{Down: down}); err != nil {
		r.t.Error(err)
	}
}

// chaosClient sends requests and checks every answer.
type chaosClient struct {
	r     *pdRig
	words *vocab.Vocabulary

	right, left, broken atomic.Int64
	calm                atomic.Int64 // broken answers without a restart of a decode engine
	unserved            atomic.Int64 // answered 503 during a restart
	shaken              atomic.Int64 // starts and ends of decode restarts; odd during one
}

// send sends one request: short or long, streamed or not, and sometimes cancelled.
func (c *chaosClient) send(rng *rand.Rand, n int) {
	text := fmt.Sprintf("request %d: ", n) + strings.Repeat("tell me more about it ", rng.IntN(120))
	stream, tokens := rng.IntN(3) > 0, 5+rng.IntN(30)
	members := map[string]any{
		"model": vocab.Name, "messages": []vocab.Message{{Role: "user", Content: vocab.Content(text)}},
		"max_tokens": tokens, "ignore_eos": true, "stream": stream,
	}
	if stream {
		members["stream_options"] = map[string]bool{"include_usage": true}
	}
	body, err := json.Marshal(members)
	if err != nil {
		c.r.t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	leaves := rng.IntN(8) == 0
	if leaves {
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(rng.IntN(150))*time.Millisecond)
		defer cancel()
	}
	before := c.shaken.Load()
	got, status, begun, err := c.ask(ctx, body, stream)
	shaken := before%2 == 1 || c.shaken.Load() != before
	switch {
	case err == nil && status == http.StatusOK:
		seed := answer.OfChat([]vocab.Message{{Role: "user", Content: vocab.Content(text)}})
		if err := answer.Check(c.words, seed, got.text); err != nil || got.tokens != tokens {
			c.r.t.Errorf("request %d: %d tokens of %d, %v", n, got.tokens, tokens, err)
			return
		}
		c.right.Add(1)
	case leaves && ctx.Err() != nil:
		c.left.Add(1)
	case status == http.StatusOK || strings.Contains(got.text, brokenOff):
		// An answer that has begun cannot be continued. Only the sidecar's count shows that it had
		// begun: Envoy may drop the content if the reset reaches it at the same time.
		c.broken.Add(1)
		if !shaken {
			c.calm.Add(1)
		}
	case shaken && status == http.StatusServiceUnavailable:
		c.unserved.Add(1)
	default:
		c.r.t.Errorf("request %d (stream %v, begun %v, a decode engine restarted %v): status %d, %v, %.200s", n, stream, begun, shaken, status, err, got.text)
	}
}

// brokenOff is Envoy's message if the start of an answer and its reset arrive together.
const brokenOff = "disconnect/reset before headers"

type chaosAnswer struct {
	text   string
	tokens int
}

var errTruncated = errors.New("the answer has no end")

// ask reads an answer to its end. begun reports whether any part arrived.
func (c *chaosClient) ask(ctx context.Context, body []byte, stream bool) (got chaosAnswer, status int, begun bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.r.client.URL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return got, 0, false, err
	}
	resp, err := c.r.client.HTTP.Do(req)
	if err != nil {
		return got, 0, false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return chaosAnswer{text: string(text)}, resp.StatusCode, false, nil
	}
	if !stream {
		var whole struct {
			Choices []struct{ Message struct{ Content string } }
			Usage   struct {
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&whole); err != nil {
			return got, 200, true, err
		}
		return chaosAnswer{whole.Choices[0].Message.Content, whole.Usage.Completion}, 200, true, nil
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		begun = true
		if data == "[DONE]" {
			return got, 200, begun, nil
		}
		var chunk struct {
			Error   json.RawMessage
			Choices []struct{ Delta struct{ Content string } }
			Usage   struct {
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || chunk.Error != nil {
			return got, 200, begun, fmt.Errorf("event %s: %w", data, err)
		}
		for _, choice := range chunk.Choices {
			got.text += choice.Delta.Content
		}
		got.tokens = max(got.tokens, chunk.Usage.Completion)
	}
	return got, 200, begun, errors.Join(errTruncated, lines.Err())
}
