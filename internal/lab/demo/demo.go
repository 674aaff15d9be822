package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// Options of Run.
type Options struct {
	Envoy    string // Envoy binary
	Self     string // this program, for the replicas
	Out      io.Writer
	TTY      bool          // redraw in place
	Engines  int           // default 6
	Prefix   string        // of their names
	Slots    int           // sequences that an engine runs at once; default 256
	KVTokens int           // of each engine's cache; default 64,000
	Speed    float64       // of engines: model time per real time; default 1
	Replicas int           // default 3
	Phase    time.Duration // of each phase; default 32 s
	Step     time.Duration // of RunHA, default 6 s; of RunQuality, default 24 s; of RunSoak the length
	Rate     float64       // of RunQuality: sessions per second; of RunFaults: requests
	Warm     time.Duration // of RunQuality and RunFaults: before the measured part; default 10 s, 15 s
	Share    string        // who reads an engine's events, as serve's --share; "" shares nothing
	FailOpen bool          // of RunFlow: Envoy places requests by itself that wait at a replica that dies

	config     string   // of the replicas, "" for the default
	flags      []string // more of them
	failClosed bool     // of Envoy
	tenants    []tenant // of RunFlow
	answers    uint64   // of RunFlow and RunQuality: each step lasts for so many, whatever time that takes
}

// Summary is what a run measured.
type Summary struct {
	RoundRobin, Grapevine Result
	Killed                string // the replica that was killed on the way
	Shared                bool   // replicas shared state
}

// Result is one phase.
type Result struct {
	Requests, Failed   uint64
	PerSecond          float64
	HitRatio, Ideal    float64
	TTFT50, TTFT90     time.Duration
	FailedDuringOutage uint64
	LastError          error // of the failed requests
}

// Failed returns the number of failed requests of both phases.
func (s *Summary) Failed() uint64 { return s.RoundRobin.Failed + s.Grapevine.Failed }

// chat is the workload: multi-turn chats of many tenants, each with a long
// system prompt. All of these together are several times what one engine's
// cache holds, and fit the caches of all engines.
var chat = workload.Kind{
	Name: "chat", Shared: 24, Zipf: 1, SharedTokens: 6000, Turns: 5, UserTokens: 80, Spread: .8, Answer: 60, Think: 2 * time.Second,
}

const (
	users     = 48
	kvTokens  = 64_000 // per engine
	blockSize = 16
)

// run is one demo under way.
type run struct {
	o      Options
	dir    string
	screen screen
	model  string
	start  time.Time
	before *Result // of round robin, once it is known
}

// Run runs the demo and returns what it measured. Everything that it starts has
// ended when it returns, also when ctx ends early.
func Run(ctx context.Context, o Options) (*Summary, error) {
	if o.Engines == 0 {
		o.Engines = 6
	}
	if o.Replicas == 0 {
		o.Replicas = 3
	}
	if o.Phase == 0 {
		o.Phase = 32 * time.Second
	}
	dir, err := os.MkdirTemp("", "grapevine-demo-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &run{o: o, dir: dir, screen: screen{w: o.Out, tty: o.TTY}, model: filepath.Join(dir, "model"), start: time.Now()}
	if err := vocab.New().WriteModel(r.model); err != nil {
		return nil, err
	}
	r.intro()
	s := &Summary{Shared: o.Share != ""}
	s.RoundRobin, err = r.roundRobin(ctx)
	if err == nil {
		r.before = &s.RoundRobin
		err = r.grapevine(ctx, s)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ErrInterrupted
	case err != nil:
		return nil, fmt.Errorf("demo: %w", err)
	}
	return s, nil
}

// ErrInterrupted is returned by Run when its context ended first.
var ErrInterrupted = errors.New("demo: interrupted; everything that was started has ended")

// intro says what is about to be seen.
func (r *run) intro() {
	fmt.Fprintf(r.o.Out, "%d engines (simulated: 70B on four GPUs, %dk tokens of KV cache), a real Envoy,\n", r.o.Engines, kvTokens/1000)
	fmt.Fprintf(r.o.Out, "%d users in chats of %d tenants with system prompts of about %d tokens.\n", users, chat.Shared, chat.SharedTokens)
	fmt.Fprintf(r.o.Out, "First Envoy places requests round robin, then it asks %d Grapevine replicas.\n\n", r.o.Replicas)
}

// engines opens a fresh fleet.
func (r *run) engines() (*sim.Fleet, []string, error) {
	tokens := cmp.Or(r.o.KVTokens, kvTokens)
	f, err := sim.OpenFleet(sim.FleetOptions{
		Engines:       r.o.Engines,
		EndpointsFile: filepath.Join(r.dir, "endpoints.yaml"),
		Engine: sim.Options{
			Speed:  r.o.Speed,
			Core:   engine.Config{BlockSize: blockSize, Blocks: tokens / blockSize, Model: engine.Model70B, MaxSeqs: r.o.Slots},
			Events: &sim.EventOptions{},
		},
		Customize: func(_ int, o *sim.Options) { o.Name = r.o.Prefix + o.Name },
	})
	if err != nil {
		return nil, nil, err
	}
	var addrs []string
	for _, e := range f.Engines() {
		addrs = append(addrs, e.Addr())
	}
	return f, addrs, nil
}

// envoy starts an Envoy and waits until it is live.
func (r *run) envoy(ctx context.Context, name string, p envoyconf.Params) (*process, string, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, "", err
	}
	p.FailClosed = r.o.failClosed
	p.Listen, p.Admin = fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	conf, err := envoyconf.Render(p)
	if err != nil {
		return nil, "", err
	}
	path := filepath.Join(r.dir, name+".yaml")
	if err := os.WriteFile(path, conf, 0o600); err != nil {
		return nil, "", err
	}
	e, err := startProcess(r.dir, name, r.o.Envoy, "-c", path, "--concurrency", "1", "--log-level", "warn", "--disable-hot-restart")
	if err != nil {
		return nil, "", err
	}
	wait, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := e.waitHTTP(wait, "http://"+p.Admin+"/ready"); err != nil {
		e.kill()
		return nil, "", err
	}
	return e, "http://" + p.Listen, nil
}

// load starts the workload against url.
func load(url string) (*workload.Runner, error) {
	return workload.Start(workload.Options{
		Source: workload.NewSource(chat, 1, vocab.Name, 0),
		Client: workload.NewClient(url, 2*users),
		Ideal:  workload.NewIdeal(vocab.New(), blockSize),
		Users:  users, ThinkScale: 1, Seed: 1, Timeout: 60 * time.Second,
	})
}

// roundRobin measures the engines behind an Envoy that asks nobody.
func (r *run) roundRobin(ctx context.Context) (Result, error) {
	fleet, addrs, err := r.engines()
	if err != nil {
		return Result{}, err
	}
	defer fleet.Close()
	e, url, err := r.envoy(ctx, "envoy-round-robin", envoyconf.Params{Kind: envoyconf.Plain, Endpoints: addrs})
	if err != nil {
		return Result{}, err
	}
	defer e.stop(3 * time.Second)
	w, err := load(url)
	if err != nil {
		return Result{}, err
	}
	defer stopLoad(ctx, w)
	watch := &watch{run: r, fleet: fleet, runner: w, phase: "round robin", note: "Envoy sends requests round robin"}
	return watch.until(ctx, r.o.Phase)
}

// stopLoad lets open requests end, unless the demo was interrupted.
func stopLoad(ctx context.Context, w *workload.Runner) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	w.Stop(ctx)
}

// errEnded says that a part ended before its time.
var errEnded = errors.New("ended before its time")
