package pools_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/pools"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// limited is the configuration of a pool that runs one request for each endpoint.
const limited = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, name: gate, parameters: {maxConcurrency: 1}}
flowControl:
  defaultRequestTTL: 30s
  saturationDetector: {pluginRef: gate}
`

// rig is the engines of two pools, with different models and block sizes, and the pools file.
type rig struct {
	t      *testing.T
	dir    string
	fleets map[string]*fleet.Fleet
}

// The pools of a rig: small has blocks of 16 and a limit, large has blocks of 32 and none.
var blockSizes = map[string]int{"small": 16, "large": 32}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), fleets: map[string]*fleet.Fleet{}}
	if err := vocab.New().WriteModel(filepath.Join(r.dir, "model")); err != nil {
		t.Fatal(err)
	}
	r.write("limited.yaml", limited)
	for name, size := range blockSizes {
		f, err := fleet.Open(fleet.Options{
			Engines: 2, EndpointsFile: filepath.Join(r.dir, name+".yaml"),
			Engine: sim.Options{Model: name, Core: engine.Config{BlockSize: size, Blocks: 4096}, Speed: math.Inf(1), Events: &sim.EventOptions{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		r.fleets[name] = f
	}
	r.serve("small", "large")
	return r
}

// engines returns the addresses of a pool's engines.
func (r *rig) engines(name string) (out []string) {
	for _, e := range r.fleets[name].Engines() {
		out = append(out, e.Addr())
	}
	return out
}

func (r *rig) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
}

// serve writes the pools file with these pools and further entries.
func (r *rig) serve(names ...string) {
	r.t.Helper()
	text := "pools:\n"
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "-"):
			text += name + "\n"
		case name == "small":
			text += "- {name: small, endpoints: small.yaml, config: limited.yaml, models: [{name: small, path: model}]}\n"
		default:
			text += fmt.Sprintf("- {name: %s, endpoints: %[1]s.yaml, models: [{name: %[1]s, path: model}]}\n", name)
		}
	}
	r.write("pools.yaml", text)
}

func (r *rig) open(change func(*pools.Options)) *pools.Server {
	r.t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() && os.Getenv("POOLS_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	o := pools.Options{AnyPort: true, File: filepath.Join(r.dir, "pools.yaml"), Process: server.Options{
		Name: "replica", Listen: "127.0.0.1:0", Health: "127.0.0.1:0", Admin: "127.0.0.1:0", Linger: -1, Log: log, Memory: 1 << 30,
	}}
	o.Process.TLS.Plaintext = true
	if change != nil {
		change(&o)
	}
	s, err := pools.Open(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.HangTimeout)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			r.t.Error(err)
		}
	})
	return s
}

func (r *rig) ready(s *pools.Server) {
	r.t.Helper()
	testkit.Eventually(r.t, func() string {
		if st := s.Status(); st.State != "ready" {
			return st.State + ": " + st.Reason
		}
		return ""
	})
}

// pool returns the status of a pool.
func pool(s *pools.Server, name string) (st pools.PoolStatus) {
	for _, p := range s.Status().Pools {
		if p.Name == name {
			st = p
		}
	}
	return st
}

// get reads a page of the administration listener.
func get(t *testing.T, s *pools.Server, path string) (code int, body []byte) {
	t.Helper()
	resp, err := http.Get("http://" + s.AdminAddr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// full returns the whole status of a pool, from its page.
func full(t *testing.T, s *pools.Server, name string) (st server.Status) {
	t.Helper()
	code, body := get(t, s, "/pools/"+name+"/status")
	if code != http.StatusOK {
		t.Fatalf("/pools/%s/status answers %d: %s", name, code, body)
	}
	if err := json.Unmarshal(body, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// call is one request of a proxy.
type call struct {
	conn   *grpc.ClientConn
	stream extprocv3.ExternalProcessor_ProcessClient
	cancel context.CancelFunc
}

func head(kv ...string) *extprocv3.HttpHeaders {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(kv); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
	}
	return &extprocv3.HttpHeaders{Headers: m}
}

// begin sends a request to a pool, without waiting for the decision.
func begin(address, model, prompt string) (*call, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testkit.HangTimeout)
	c := &call{conn: conn, cancel: cancel}
	if c.stream, err = extprocv3.NewExternalProcessorClient(conn).Process(ctx); err != nil {
		c.close()
		return nil, err
	}
	body := fmt.Appendf(nil, `{"model":%q,"prompt":%q,"max_tokens":1}`, model, prompt)
	for _, m := range []*extprocv3.ProcessingRequest{
		{
			Request:        &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: head(":authority", "gateway", ":path", "/v1/completions", ":method", "POST", "content-type", "application/json")},
			ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED, ResponseBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED},
		},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: body, EndOfStream: true}}},
	} {
		if err := c.stream.Send(m); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *call) close() {
	c.cancel()
	c.conn.Close()
}

// decision returns the chosen endpoint, or the status of a refusal.
func (c *call) decision() (endpoint string, refused int, err error) {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			return "", 0, err
		}
		if r := m.GetImmediateResponse(); r != nil {
			return "", int(r.GetStatus().GetCode()), nil
		}
		for _, h := range m.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
			if h.GetHeader().GetKey() == "x-gateway-destination-endpoint" {
				endpoint = string(h.GetHeader().GetRawValue())
			}
		}
		if m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetEndOfStream() {
			return endpoint, 0, nil
		}
	}
}

// end reports the engine's answer.
func (c *call) end() error {
	defer c.close()
	answer := head(":status", "200", "content-type", "application/json")
	answer.EndOfStream = true
	if err := c.stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: answer}}); err != nil {
		return err
	}
	if _, err := c.stream.Recv(); err != nil {
		return err
	}
	return c.stream.CloseSend()
}

// ask sends one request to a pool and to the chosen engine, and returns the engine.
func ask(t *testing.T, address, model, prompt string) string {
	t.Helper()
	c, err := begin(address, model, prompt)
	if err != nil {
		t.Fatal(err)
	}
	at, refused, err := c.decision()
	if err != nil || refused != 0 {
		t.Fatalf("request for %s: refused with %d, error %v", model, refused, err)
	}
	body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":1}`, model, prompt)
	resp, err := http.Post("http://"+at+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("engine %s answers %d for %s", at, resp.StatusCode, model)
	}
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	return at
}

// TestPoolsApart: two pools with different models, block sizes and configurations in one process.
// Requests go to the engines of their own pool, and only this pool's index and counts change.
func TestPoolsApart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	r.ready(s)
	small, large := pool(s, "small").Address, pool(s, "large").Address
	prompt := strings.Repeat("a prompt that is common to many requests ", 40)
	for i := range 6 {
		at := ask(t, small, "small", prompt+fmt.Sprint(i))
		if !slices.Contains(r.engines("small"), at) {
			t.Errorf("pool small sent a request to %s, want one of %v", at, r.engines("small"))
		}
	}
	testkit.Await(t, "pool small knows the blocks of its engines", func() bool { return full(t, s, "small").Index.Blocks > 10 })
	if st := full(t, s, "large"); st.Index.Blocks != 0 || st.Decisions != 0 || st.Pool != "large" {
		t.Errorf("pool %s has %d blocks and %d decisions after requests of the other, want none", st.Pool, st.Index.Blocks, st.Decisions)
	}
	if at := ask(t, large, "large", prompt); !slices.Contains(r.engines("large"), at) {
		t.Errorf("pool large sent a request to %s, want one of %v", at, r.engines("large"))
	}
	c, err := begin(large, "small", prompt)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if at, refused, err := c.decision(); refused != http.StatusNotFound || err != nil {
		t.Errorf("pool large answers a request for the other pool's model with endpoint %q, status %d, error %v; want 404", at, refused, err)
	}
	testPages(t, s)
	testMetrics(t, s)
	testHealth(t, small)
}

// testPages: pages of the process and of each pool.
func testPages(t *testing.T, s *pools.Server) {
	t.Helper()
	for path, want := range map[string]string{
		"/":                            `<a href="pools/large/">large</a>`,
		"/status":                      `"name": "small"`,
		"/readyz":                      "ready",
		"/healthz":                     "ok",
		"/pools/small/":                "Grapevine",
		"/pools/small/readyz?verbose":  "[+] endpoints",
		"/pools/small/debug/decisions": `"choice"`,
		"/pools/small/metrics":         "grapevine_",
	} {
		if code, body := get(t, s, path); code != http.StatusOK || !bytes.Contains(body, []byte(want)) {
			t.Errorf("%s answers %d without %q: %.200s", path, code, want, body)
		}
	}
	for path, want := range map[string]string{"/pools/none/status": "no such pool", "/debug/decisions": "/pools/NAME/debug/decisions"} {
		if code, body := get(t, s, path); code != http.StatusNotFound || !bytes.Contains(body, []byte(want)) {
			t.Errorf("%s answers %d: %.200s; want 404 and %q", path, code, body, want)
		}
	}
}

// testMetrics: the page of all pools is valid and has no series twice.
func testMetrics(t *testing.T, s *pools.Server) {
	t.Helper()
	_, page := get(t, s, "/metrics")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	series, labelled := map[string]bool{}, map[string]int{}
	for name, f := range families {
		for _, m := range f.Metric {
			key := name
			for _, l := range m.Label {
				key += fmt.Sprintf(",%s=%q", l.GetName(), l.GetValue())
				if l.GetName() == "pool" {
					labelled[l.GetValue()]++
				}
			}
			if series[key] {
				t.Errorf("series %s is there twice", key)
			}
			series[key] = true
		}
	}
	if labelled["small"] < 50 || labelled["large"] < 50 || len(labelled) != 2 {
		t.Errorf("series by pool: %v, want many of small and of large", labelled)
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if f := families[name]; f == nil || len(f.Metric) != 1 {
			t.Errorf("%s: want it once", name)
		}
	}
	if !series[`grapevine_pools,state="ready"`] {
		t.Error("grapevine_pools is missing")
	}
}

// testHealth: a pool's own port has the health service.
func testHealth(t *testing.T, address string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health of a pool at its port: %v, %v", got, err)
	}
}

// TestFullPool: a pool whose queue is full of waiting requests does not delay the other.
func TestFullPool(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	r.ready(s)
	small, large := pool(s, "small").Address, pool(s, "large").Address
	var held []*call
	for range 2 { // as many as it has engines
		c, err := begin(small, "small", "hold")
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		if _, refused, err := c.decision(); err != nil || refused != 0 {
			t.Fatalf("refused with %d, error %v", refused, err)
		}
		held = append(held, c)
	}
	for range 20 {
		c, err := begin(small, "small", "wait")
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
	}
	queued := func(name string) (n int) {
		for _, q := range full(t, s, name).Queues {
			n += q.Waiting
		}
		return n
	}
	testkit.Await(t, "20 requests wait in pool small", func() bool { return queued("small") == 20 })
	for range 3 {
		ask(t, large, "large", "at once")
	}
	if n := queued("large"); n != 0 {
		t.Errorf("%d requests wait in pool large, want none", n)
	}
	inFlight := func(name string) (n int64) {
		for _, e := range full(t, s, name).Endpoints {
			n += e.InFlight
		}
		return n
	}
	if small, large := inFlight("small"), inFlight("large"); small != 2 || large != 0 {
		t.Errorf("in flight: %d at pool small, %d at pool large, want 2 and 0", small, large)
	}
	for _, c := range held {
		if err := c.end(); err != nil {
			t.Error(err)
		}
	}
	testkit.Await(t, "as many waiting requests are dispatched as have ended", func() bool { return queued("small") == 18 })
}

// TestChangePools: pools are added, changed and removed while requests run. Removal waits for the
// pool's requests. Invalid entries are named and affect no other pool.
func TestChangePools(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve("small", "- {name: broken, endpoints: small.yaml, config: missing.yaml}", "- {name: odd, prot: 9002}", "- {name: empty, endpoints: empty.yaml}")
	r.write("empty.yaml", "endpoints: []\n")
	s := r.open(nil)
	testkit.Await(t, "ready with one pool", func() bool { return pool(s, "small").State == "ready" && s.Status().State == "degraded" })
	if code, body := get(t, s, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz answers %d while one pool is ready: %s", code, body)
	}
	for name, want := range map[string]string{"broken": "missing.yaml", "odd": `unknown field "prot"`} {
		if st := pool(s, name); st.State != "invalid" || !strings.Contains(st.Reason, want) {
			t.Errorf("pool %s is %s (%s), want it invalid because of %s", name, st.State, st.Reason, want)
		}
	}
	if st := pool(s, "empty"); st.State != "starting" {
		t.Errorf("the pool without endpoints is %s, want starting", st.State)
	}

	small := pool(s, "small").Address
	open, err := begin(small, "small", "open")
	if err != nil {
		t.Fatal(err)
	}
	defer open.close()
	if _, _, err := open.decision(); err != nil {
		t.Fatal(err)
	}
	r.serve("large")
	testkit.Await(t, "pool large is ready and pool small drains", func() bool {
		return pool(s, "large").State == "ready" && pool(s, "small").State == "draining"
	})
	ask(t, pool(s, "large").Address, "large", "while the other drains")
	if err := open.end(); err != nil {
		t.Errorf("the open request of the removed pool: %v", err)
	}
	testkit.Await(t, "pool small has ended", func() bool { return pool(s, "small").Name == "" })
	if code, _ := get(t, s, "/pools/small/status"); code != http.StatusNotFound {
		t.Errorf("the removed pool's page answers %d, want 404", code)
	}

	r.write("pools.yaml", "pools: {}\n") // an invalid file changes nothing
	testkit.Await(t, "the invalid file is named", func() bool { return strings.Contains(s.Status().Reason, "pools.yaml") })
	ask(t, pool(s, "large").Address, "large", "with an invalid file")

	before := pool(s, "large").Address
	r.serve("small", "- {name: large, endpoints: large.yaml, maxBody: 1000}") // another setting
	testkit.Await(t, "both pools are ready", func() bool {
		return s.Status().State == "ready" && len(s.Status().Pools) == 2 && pool(s, "large").Address != before
	})
	ask(t, pool(s, "small").Address, "small", "again")
	if c, err := begin(pool(s, "large").Address, "large", strings.Repeat("long ", 300)); err != nil {
		t.Error(err)
	} else {
		defer c.close()
		if _, refused, err := c.decision(); refused != http.StatusRequestEntityTooLarge {
			t.Errorf("a body over the pool's limit is answered with %d, error %v; want 413", refused, err)
		}
	}
}

// TestMemoryOfPools: each pool has an equal part of the memory, also after a change.
func TestMemoryOfPools(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	r.ready(s)
	limit := func(name string) (bytes float64) {
		families, err := s.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.Metric {
				if l := m.Label; f.GetName() == "grapevine_memory_budget_bytes" && len(l) == 2 && l[0].GetValue() == name && l[1].GetValue() == "bodies" {
					bytes = m.GetGauge().GetValue()
				}
			}
		}
		return bytes
	}
	if got, want := limit("small"), float64(1<<30/2/100*20); got != want {
		t.Errorf("bodies of pool small may take %v bytes, want %v: half of the process's", got, want)
	}
	r.serve("small")
	testkit.Await(t, "the remaining pool has all of it", func() bool { return limit("small") == float64(1<<30/100*20) })
}

// membersOf returns why the pools of some replica are not ready with n members, or "".
func membersOf(t *testing.T, n int, of ...*pools.Server) string {
	t.Helper()
	for _, s := range of {
		for name := range blockSizes {
			st := full(t, s, name)
			up := 0
			for _, m := range st.Members {
				if m.State == "self" || m.State == "up" {
					up++
				}
			}
			if up != n || st.State != "ready" {
				return fmt.Sprintf("pool %s of %s is %s (%s) with %d members", name, st.Name, st.State, st.Reason, up)
			}
		}
	}
	return ""
}

// grouped are the settings of a replica in a group, whose gossip listens at an address.
func grouped(o *pools.Options, name, at string, join ...string) {
	o.Process.Name = name
	o.Process.Cluster = server.ClusterOptions{
		Mode: "gossip", Share: "partitioned", Label: "test", Keys: [][]byte{bytes.Repeat([]byte{7}, 32)},
		Bind: at, StreamBind: "127.0.0.1:0", Advertise: at, Join: join,
	}
}

// Variables of a replica in a process of its own.
const (
	childDir  = "POOLS_CHILD_DIR"
	childAt   = "POOLS_CHILD_AT"
	childJoin = "POOLS_CHILD_JOIN"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		o := pools.Options{AnyPort: true, File: filepath.Join(dir, "pools.yaml"), Process: server.Options{
			Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Memory: 1 << 30,
		}}
		grouped(&o, "child", os.Getenv(childAt), os.Getenv(childJoin))
		if _, err := pools.Open(o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the test
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestKilledProcess: a replica that is killed is gone from every pool, and what the others know of
// each pool stays.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first, second, third := parts.FreeAddress(t), parts.FreeAddress(t), parts.FreeAddress(t)
	rest := []*pools.Server{
		r.open(func(o *pools.Options) { grouped(o, "a", first) }),
		r.open(func(o *pools.Options) { grouped(o, "b", second, first) }),
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+r.dir, childAt+"="+third, childJoin+"="+first)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for _, s := range rest {
		testkit.Await(t, "open", func() bool { return pool(s, "small").Address != "" && pool(s, "large").Address != "" })
	}
	testkit.Eventually(t, func() string { return membersOf(t, 3, rest...) })
	known := map[string]int{}
	for name := range blockSizes {
		ask(t, pool(rest[0], name).Address, name, strings.Repeat("a prompt of "+name+" ", 100))
		for _, s := range rest {
			testkit.Await(t, "the blocks of pool "+name+" are known", func() bool { return full(t, s, name).Index.Blocks > 5 })
		}
		known[name] = full(t, rest[0], name).Index.Blocks
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	testkit.Eventually(t, func() string { return membersOf(t, 2, rest...) })
	for name, blocks := range known {
		for _, s := range rest {
			if n := full(t, s, name).Index.Blocks; n != blocks {
				t.Errorf("pool %s has %d blocks after a replica was killed, want %d", name, n, blocks)
			}
			ask(t, pool(s, name).Address, name, "afterwards")
		}
	}
}

// TestFlood: open bodies that use up the memory of one pool are refused there, and the other pool
// takes a body of the same size.
func TestFlood(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(func(o *pools.Options) { o.Process.Memory = 256 << 20 }) // 25 MiB for the bodies of each
	r.ready(s)
	small, large := pool(s, "small").Address, pool(s, "large").Address
	part := bytes.Repeat([]byte("x"), 3<<20)
	for range 20 {
		conn, err := grpc.NewClient(small, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		stream, err := extprocv3.NewExternalProcessorClient(conn).Process(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*extprocv3.ProcessingRequest{
			{
				Request:        &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: head(":authority", "gateway", ":path", "/v1/completions", ":method", "POST", "content-type", "application/json")},
				ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED, ResponseBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED},
			},
			{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: part}}},
		} {
			_ = stream.Send(m) // some messages are cut
		}
	}
	value := func(pool, name string) (sum float64) {
		families, err := s.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.Metric {
				labels := map[string]string{}
				for _, l := range m.Label {
					labels[l.GetName()] = l.GetValue()
				}
				if f.GetName() == name && labels["pool"] == pool && labels["use"] == "bodies" {
					sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
		return sum
	}
	testkit.Await(t, "pool small refuses bodies", func() bool { return value("small", "grapevine_memory_budget_refused_total") > 0 })
	c, err := begin(large, "large", string(part))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if at, refused, err := c.decision(); at == "" || err != nil {
		t.Errorf("pool large answers a large body with endpoint %q, status %d, error %v", at, refused, err)
	}
	if n := value("large", "grapevine_memory_budget_refused_total"); n != 0 {
		t.Errorf("pool large refused memory %v times during the flood of the other, want none", n)
	}
	if used, limit := value("small", "grapevine_memory_budget_used_bytes"), value("small", "grapevine_memory_budget_bytes"); used > limit {
		t.Errorf("bodies of pool small use %v bytes of %v", used, limit)
	}
}

// TestGroupOfPools: three replicas share each pool's state separately. When one of them ends, the
// others keep what is known of each pool.
func TestGroupOfPools(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var all []*pools.Server
	var join []string
	for i := range 3 {
		at := parts.FreeAddress(t)
		all = append(all, r.open(func(o *pools.Options) { grouped(o, fmt.Sprintf("replica-%d", i), at, slices.Clone(join)...) }))
		join = append(join, at)
	}
	members := func(n int, of ...*pools.Server) string { return membersOf(t, n, of...) }
	for _, s := range all {
		testkit.Await(t, "open", func() bool { return pool(s, "small").Address != "" && pool(s, "large").Address != "" })
	}
	testkit.Eventually(t, func() string { return members(3, all...) })

	prompt := strings.Repeat("a prompt that is common to many requests ", 40)
	ask(t, pool(all[0], "small").Address, "small", prompt)
	blocks := func(s *pools.Server, name string) int { return full(t, s, name).Index.Blocks }
	for _, s := range all {
		testkit.Await(t, "every replica knows the blocks of pool small", func() bool { return blocks(s, "small") > 10 })
	}
	small := blocks(all[0], "small")
	c, err := begin(pool(all[2], "large").Address, "large", prompt)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if _, _, err := c.decision(); err != nil {
		t.Fatal(err)
	}
	inFlight := func(s *pools.Server, name string) (n int64) {
		for _, e := range full(t, s, name).Endpoints {
			n += e.InFlight
		}
		return n
	}
	for _, s := range all {
		testkit.Await(t, "every replica counts the open request of pool large", func() bool { return inFlight(s, "large") == 1 })
		if n := inFlight(s, "small"); n != 0 {
			t.Errorf("pool small counts %d requests in flight, want none", n)
		}
		if n := blocks(s, "large"); n != 0 {
			t.Errorf("pool large has %d blocks, want none", n)
		}
	}

	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = all[1].Stop(gone)
	rest := []*pools.Server{all[0], all[2]}
	testkit.Eventually(t, func() string { return members(2, rest...) })
	for _, s := range rest {
		if n := blocks(s, "small"); n != small {
			t.Errorf("pool small has %d blocks after a replica vanished, want %d", n, small)
		}
	}
	ask(t, pool(rest[0], "small").Address, "small", prompt+" and more")
	for _, s := range rest {
		testkit.Await(t, "the others read the engines of pool small", func() bool { return blocks(s, "small") >= small })
	}
	ask(t, pool(rest[1], "large").Address, "large", prompt)
	for _, s := range rest {
		testkit.Await(t, "the others share pool large", func() bool { return blocks(s, "large") > 10 })
	}
}

// finder is a list of pools that a test changes.
type finder struct {
	mu      sync.Mutex
	list    []pools.Found
	known   bool
	changed chan struct{}
}

func (f *finder) Pools() ([]pools.Found, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list), f.known
}

func (f *finder) set(known bool, names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list, f.known = nil, known
	for _, name := range names {
		f.list = append(f.list, pools.Found{Name: name})
	}
	f.changed <- struct{}{}
}

func (f *finder) Changed() <-chan struct{} { return f.changed }
func (f *finder) Problem() string          { return "" }
func (f *finder) Close()                   {}

// TestFoundPools: pools that are found at run time are served with the settings of the file. A pool
// that is missing is removed after the grace period, and not while the list is unknown.
func TestFoundPools(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := &finder{changed: make(chan struct{}, 10)}
	s := r.open(func(o *pools.Options) { o.Finder, o.Grace = f, 1500*time.Millisecond })
	if st := s.Status(); st.State != "starting" || len(st.Pools) != 0 {
		t.Errorf("before pools are known: %s with %d pools, want starting with none", st.State, len(st.Pools))
	}
	f.set(true, "small")
	r.ready(s)
	if st := s.Status(); len(st.Pools) != 1 {
		t.Errorf("%d pools are served, want the one that was found", len(st.Pools))
	}
	f.set(true, "large", "small")
	testkit.Await(t, "both are ready", func() bool { return pool(s, "large").State == "ready" && pool(s, "small").State == "ready" })
	at := pool(s, "small").Address
	f.set(false)
	f.set(true, "large")
	f.set(true, "large", "small")
	testkit.Await(t, "the changes were applied", func() bool { return len(f.changed) == 0 })
	if now := pool(s, "small").Address; now != at {
		t.Errorf("pool small was opened again at %s: it was missing for less than the grace period", now)
	}
	f.set(true, "large")
	testkit.Await(t, "the missing pool is removed", func() bool { return len(s.Status().Pools) == 1 })
	ask(t, pool(s, "large").Address, "large", "after the removal")
}

// TestRemedyOfPool: where a model of a pool has no files, the remedy names a setting that exists with
// several pools.
func TestRemedyOfPool(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve("- {name: plain, endpoints: small.yaml}", "large")
	s := r.open(func(o *pools.Options) {
		o.Process.ModelSource = modelfiles.Options{Mode: modelfiles.ModeCache, Cache: t.TempDir()}
	})
	testkit.Await(t, "the pool is open", func() bool { return pool(s, "plain").Address != "" })
	testkit.Eventually(t, func() string {
		for _, f := range full(t, s, "plain").Problems {
			if f.Code == problems.ModelFiles {
				if !strings.Contains(f.Items[0].Detail, "models of pool plain in the file of --pools") || strings.Contains(f.Items[0].Detail, "--model ") {
					t.Fatalf("remedy %q, want models of the pools file and not --model, which is refused with several pools", f.Items[0].Detail)
				}
				return ""
			}
		}
		return "no problem with model files"
	})
}
