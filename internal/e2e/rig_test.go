package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// rigOptions change the default rig: four engines whose steps take no time, one replica in this
// process, the resilient configuration.
type rigOptions struct {
	kind     envoyconf.Kind
	engines  int
	engine   sim.Options
	each     func(i int, o *sim.Options) // changes the options of one engine
	replicas int
	params   func(*envoyconf.Params)
	children bool // replicas are processes
	server   func(*server.Options)
}

// rig is a set of engines, replicas and an Envoy.
type rig struct {
	t       *testing.T
	dir     string
	list    string // endpoints file
	model   string // folder of the tokenizer
	fleet   *fleet.Fleet
	servers []*server.Server
	childs  []*child
	log     *complaints
	envoy   *testkit.Envoy
	client  *workload.Client
	begin   int // goroutines before the rig was opened
	extproc []string
	front   []string // addresses in front of the engines
	closed  bool
}

func open(t *testing.T, o rigOptions) *rig {
	t.Helper()
	r := begin(t)
	r.openFleet(o)
	for range max(o.replicas, 1) {
		switch {
		case o.kind == envoyconf.Plain:
		case o.children:
			r.startReplica()
		default:
			r.openReplica(o.server)
		}
	}
	r.openEnvoy(o)
	t.Cleanup(r.close)
	return r
}

// begin returns a rig without running parts.
func begin(t *testing.T) *rig {
	t.Helper()
	parts.Full(t)
	r := &rig{t: t, dir: t.TempDir(), log: &complaints{}, begin: runtime.NumGoroutine()}
	r.list, r.model = filepath.Join(r.dir, "endpoints.yaml"), filepath.Join(r.dir, "model")
	if err := vocab.New().WriteModel(r.model); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) openFleet(o rigOptions) {
	r.t.Helper()
	if o.engine.Speed == 0 {
		o.engine.Speed = 1e6
	}
	if o.engine.Events == nil {
		o.engine.Events = &sim.EventOptions{}
	}
	if o.engines == 0 {
		o.engines = 4
	}
	var err error
	if r.fleet, err = fleet.Open(fleet.Options{Engines: o.engines, EndpointsFile: r.list, Engine: o.engine, Customize: o.each}); err != nil {
		r.t.Fatal(err)
	}
}

// openReplica opens a replica in this process and waits until it is ready.
func (r *rig) openReplica(change func(*server.Options)) *server.Server {
	r.t.Helper()
	o := server.Options{
		Name: fmt.Sprintf("replica-%d", len(r.servers)+1), Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0",
		Endpoints: r.list, Models: []server.ModelOptions{{Name: vocab.Name, Path: r.model}},
		AllowModeOverride: true, Linger: -1, Log: slog.New(r.log),
	}
	if change != nil {
		change(&o)
	}
	s, err := server.Open(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.servers, r.extproc = append(r.servers, s), append(r.extproc, s.ExtProcAddr().String())
	testkit.Await(r.t, "the replica is ready", func() bool { return s.Status().State == "ready" })
	return s
}

func (r *rig) openEnvoy(o rigOptions) {
	r.t.Helper()
	p := envoyconf.Params{Kind: o.kind, MessageTimeout: patience, NetworkTimeout: testkit.NetworkTimeout, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", ExtProc: r.extproc, Endpoints: r.addrs()}
	if o.params != nil {
		o.params(&p)
	}
	conf, err := envoyconf.Render(p)
	if err != nil {
		r.t.Fatal(err)
	}
	r.envoy = testkit.StartEnvoy(r.t, conf)
	r.client = workload.NewClient("http://"+r.envoy.Addr("inference"), 64)
}

// addrs returns the addresses of the engines, or of the parts in front of the engines.
func (r *rig) addrs() (list []string) {
	if r.front != nil {
		return r.front
	}
	for _, e := range r.fleet.Engines() {
		list = append(list, e.Addr())
	}
	return list
}

// run plays a workload to its end.
func (r *rig) run(o workload.Options) workload.Totals {
	r.t.Helper()
	o.Client = r.client
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	w, err := workload.Start(o)
	if err != nil {
		r.t.Fatal(err)
	}
	w.Wait()
	w.Stop(context.Background())
	t := w.Totals()
	if t.Errors+t.Wrong > 0 {
		r.t.Errorf("%d requests failed, %d were answered wrong of %d, the last: %v", t.Errors, t.Wrong, t.Requests, w.LastError())
	}
	return t
}

// settle waits until no replica counts a request in flight.
func (r *rig) settle() {
	r.t.Helper()
	for i := range r.servers {
		testkit.Await(r.t, "in-flight book back to zero", func() bool { return r.inFlight(i) == 0 })
	}
}

// inFlight returns the number of requests that a replica counts.
func (r *rig) inFlight(replica int) (n int64) {
	for _, e := range r.servers[replica].Status().Endpoints {
		n += e.InFlight
	}
	return n
}

// clean asserts that no part logged a warning and that Envoy counted no fault.
func (r *rig) clean() {
	r.t.Helper()
	if list := r.log.list(); len(list) > 0 {
		r.t.Errorf("%d warnings and errors in our log, the first: %s", len(list), list[0])
	}
	for line := range strings.Lines(r.envoy.Log()) {
		if strings.Contains(line, "][") && !strings.Contains(line, usualWarning) {
			r.t.Errorf("envoy: %s", line)
		}
	}
	for name, n := range r.envoy.Stats(r.t, "ext_proc.picker.") {
		for _, bad := range faultStats {
			if strings.HasSuffix(name, "."+bad) && n != 0 {
				r.t.Errorf("envoy: %s = %d", name, n)
			}
		}
	}
}

// usualWarning is the warning of every Envoy without an overload manager.
const usualWarning = "no configured limit to the number of allowed active downstream connections"

// faultStats are counters of the ext_proc filter that stay zero if both sides keep to the protocol
// and no picker is lost.
var faultStats = []string{
	"spurious_msgs_received", "streams_failed", "failure_mode_allowed", "message_timeouts", "rejected_header_mutations",
	"server_half_closed", "http_not_ok_resp_received", "immediate_responses_sent", "override_message_timeout_ignored",
	"clear_route_cache_upstream_ignored",
}

// close stops everything and asserts that no goroutine is left. It may be called again.
func (r *rig) close() {
	if r.closed {
		return
	}
	r.closed = true
	r.client.Close()
	r.envoy.Stop()
	for _, c := range r.childs {
		c.kill()
	}
	for _, s := range r.servers {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := s.Stop(ctx); err != nil {
			r.t.Errorf("stop: %v", err)
		}
		cancel()
	}
	if err := r.fleet.Close(); err != nil {
		r.t.Errorf("engines: %v", err)
	}
	ok := testkit.PollUntil(func() bool { return runtime.NumGoroutine() <= r.begin })
	if !ok && !r.t.Failed() {
		buf := make([]byte, 1<<20)
		r.t.Errorf("%d goroutines, %d at the start:\n%s", runtime.NumGoroutine(), r.begin, buf[:runtime.Stack(buf, true)])
	}
}

// patience is the timeout for conditions on a busy machine.
const patience = time.Minute

// complaints is a log handler that records warnings and errors.
type complaints struct {
	mu    sync.Mutex
	lines []string
}

// Enabled implements slog.Handler.
func (c *complaints) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (c *complaints) Handle(_ context.Context, rec slog.Record) error {
	line := rec.Level.String() + " " + rec.Message
	rec.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, line)
	return nil
}

// WithAttrs implements slog.Handler.
func (c *complaints) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup implements slog.Handler.
func (c *complaints) WithGroup(string) slog.Handler { return c }

func (c *complaints) list() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines
}
