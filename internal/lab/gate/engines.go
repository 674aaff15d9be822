package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
)

// Model is the name that the engines serve.
const Model = "bench-model"

// blockTokens is the block size of the engines' caches.
const blockTokens = 16

// churn is how many block changes the holders together publish per second.
const churn = 800

// engines are many simulated engines behind one listener: every address of 127.0.0.0/8
// reaches it, so 10,000 endpoints need one socket. The first endpoints publish events.
type engines struct {
	server     *http.Server
	port       int
	publishers []*kvstream.Publisher
	names      *rand.Rand // of stored blocks
	started    time.Time
	quiet      atomic.Bool // the holders publish nothing, and pages show no request

	mu    sync.Mutex
	pages [3][]byte // with 0, 1 and 2 waiting requests
	idle  []byte    // without requests
	made  time.Time
	lay   *pageLayout

	stop context.CancelFunc
	done sync.WaitGroup
}

// openEngines starts engines of which the first holders publish events.
func openEngines(holders int) (*engines, error) {
	lis, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		return nil, err
	}
	e := &engines{port: lis.Addr().(*net.TCPAddr).Port, names: rand.New(rand.NewPCG(7, 7)), started: time.Now(), lay: newPageLayout()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", e.metrics)
	mux.HandleFunc("GET /v1/models", e.models)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version":"0.28.0"}`) })
	mux.HandleFunc("POST /v1/chat/completions", streamedAnswer)
	e.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	e.done.Go(func() { _ = e.server.Serve(lis) })
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	for i := range holders {
		p, err := kvstream.Open(kvstream.Options{Addr: address(i) + ":0", ReplayAddr: address(i) + ":0"})
		if err != nil {
			e.close()
			return nil, err
		}
		e.publishers = append(e.publishers, p)
	}
	if holders > 0 {
		e.done.Go(func() { e.churn(ctx) })
	}
	return e, nil
}

func (e *engines) close() {
	e.stop()
	_ = e.server.Close()
	for _, p := range e.publishers {
		_ = p.Close()
	}
	e.done.Wait()
}

// address returns the address of engine i.
func address(i int) string { return fmt.Sprintf("127.%d.%d.%d", 1+i>>16, i>>8&255, i&255) }

// write writes an endpoints file with n endpoints.
func (e *engines) write(path string, n int) error {
	list := make([]fleet.Endpoint, n)
	for i := range list {
		list[i] = fleet.Endpoint{Name: fmt.Sprint("engine-", i), Namespace: "default", Address: address(i), Port: e.port,
			Model: Model, Labels: map[string]string{"inference.networking.k8s.io/engine-type": "vllm"}}
		if i < len(e.publishers) {
			p := e.publishers[i]
			list[i].Events = &fleet.EndpointEvents{Port: portOf(p.Addr()), ReplayPort: portOf(p.ReplayAddr())}
		}
	}
	raw, err := yaml.Marshal(map[string]any{"endpoints": list})
	if err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o600)
}

func portOf(address string) int {
	_, text, _ := net.SplitHostPort(address)
	port, _ := strconv.Atoi(text)
	return port
}

// metrics serves a page of real size. The number of waiting requests depends on the
// engine's address.
func (e *engines) metrics(w http.ResponseWriter, r *http.Request) {
	at := 0
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		at = int(local.IP[len(local.IP)-1]) % len(e.pages)
	}
	e.mu.Lock()
	if now := time.Now(); now.Sub(e.made) > 200*time.Millisecond {
		e.made = now
		for i := range e.pages {
			e.pages[i] = e.lay.append(nil, 3+i, i, now.Sub(e.started))
		}
		if e.idle == nil {
			e.idle = e.lay.append(nil, 0, 0, now.Sub(e.started))
		}
	}
	body := e.pages[at]
	if e.quiet.Load() {
		body = e.idle
	}
	e.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(body)
}

func (e *engines) models(w http.ResponseWriter, _ *http.Request) {
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": []any{
		map[string]any{"id": Model, "object": "model", "owned_by": "vllm", "root": Model, "created": e.started.Unix(), "max_model_len": 262144}}})
}

// answerChunks is how many events a streamed answer has.
const answerChunks = 50

// streamedAnswer sends a chat answer event by event, with different words and a finish reason, as sound
// engines do. Its usage names no cached tokens, as with vLLM's default flags.
func streamedAnswer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	control := http.NewResponseController(w)
	for i := range answerChunks {
		switch finish := "null"; i {
		case answerChunks - 2:
			finish = `"stop"`
			fallthrough
		default:
			fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%x "},"finish_reason":%s}]}`+"\n\n", rand.Uint32(), finish)
		case answerChunks - 1:
			fmt.Fprint(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":49,"total_tokens":149}}`+"\n\ndata: [DONE]\n\n")
		}
		if control.Flush() != nil || r.Context().Err() != nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// pageLayout is a metrics page with gaps for the numbers that change.
type pageLayout struct {
	parts [][]byte
	names []string // of the number behind each part
}

var changing = regexp.MustCompile(`(?m)^(vllm:(?:num_requests_running|num_requests_waiting|kv_cache_usage_perc|prompt_tokens_total|generation_tokens_total|iteration_tokens_total_count|iteration_tokens_total_sum))\{[^}\n]*\} (\S+)$`)

func newPageLayout() *pageLayout {
	core := engine.Config{BlockSize: blockTokens, Blocks: 20_000, MaxModelLen: 262_144}
	p := page.New(&page.Options{Model: Model, Ranks: 1, Core: core})
	text := p.Append(nil, time.Now(), time.Now(), []*page.Meter{page.NewMeter(core, nil)}, page.NewHTTPMeter())
	l, from := &pageLayout{}, 0
	for _, m := range changing.FindAllSubmatchIndex(text, -1) {
		l.parts, l.names = append(l.parts, text[from:m[4]]), append(l.names, string(text[m[2]:m[3]]))
		from = m[5]
	}
	l.parts = append(l.parts, text[from:])
	return l
}

func (l *pageLayout) append(dst []byte, running, waiting int, age time.Duration) []byte {
	seconds := age.Seconds() + 1
	for i, name := range l.names {
		dst = append(dst, l.parts[i]...)
		switch name {
		case "vllm:num_requests_waiting":
			dst = strconv.AppendInt(dst, int64(waiting), 10)
		case "vllm:num_requests_running":
			dst = strconv.AppendInt(dst, int64(running), 10)
		case "vllm:kv_cache_usage_perc":
			dst = append(dst, "0.3"...)
		default:
			dst = strconv.AppendInt(dst, int64(seconds*1000), 10)
		}
	}
	return append(dst, l.parts[len(l.parts)-1]...)
}

// fill has every holder publish the blocks of the prompts.
func (e *engines) fill(prompts [][]uint32) {
	for _, p := range e.publishers {
		for _, tokens := range prompts {
			p.Publish(encode(stored(e.names, tokens)))
		}
	}
}

// stored is the event that stores the blocks of a prompt under random names.
func stored(names *rand.Rand, tokens []uint32) []engine.Event {
	n := len(tokens) / blockTokens
	ev := engine.Event{Kind: engine.Stored, Tokens: tokens[:n*blockTokens]}
	for range n {
		ev.Hashes = append(ev.Hashes, engine.Hash(names.Uint64()))
	}
	return []engine.Event{ev}
}

func encode(events []engine.Event) []byte {
	b := kvstream.Batch{Time: float64(time.Now().UnixMicro()) / 1e6, BlockSize: blockTokens}
	return kvstream.AppendBatch(nil, kvstream.FormatMap, b, events)
}

// churn has the holders store and remove blocks of other prompts, one holder after the
// other, until ctx ends.
func (e *engines) churn(ctx context.Context) {
	const perBatch = 8 // blocks stored, and as many removed
	tick := time.NewTicker(2 * perBatch * time.Second / churn)
	defer tick.Stop()
	names := rand.New(rand.NewPCG(11, 11))
	last := make([][]engine.Hash, len(e.publishers))
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if e.quiet.Load() {
			continue
		}
		k := i % len(e.publishers)
		tokens := make([]uint32, perBatch*blockTokens)
		for t := range tokens {
			tokens[t] = 1000 + names.Uint32N(20_000)
		}
		events := stored(names, tokens)
		for _, h := range last[k] {
			events = append(events, engine.Event{Kind: engine.Removed, Hash: h})
		}
		last[k] = events[0].Hashes
		e.publishers[k].Publish(encode(events))
	}
}
