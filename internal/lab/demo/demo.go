package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// Options of Run. Of the parts, six engines and three replicas are the default.
type Options struct {
	rig.Options
	Out      io.Writer
	TTY      bool          // redraw in place
	Phase    time.Duration // of each phase; default 32 s
	Step     time.Duration // of RunHA, default 6 s; of RunQuality, default 24 s; of RunSoak the length
	Rate     float64       // of RunQuality: sessions per second; of RunFaults: requests
	Warm     time.Duration // of RunQuality and RunFaults: before the measured part; default 10 s, 15 s
	FailOpen bool          // of RunFlow: Envoy places requests by itself that wait at a replica that dies

	tenants []tenant // of RunFlow
	answers uint64   // of RunFlow and RunQuality: each step lasts for so many, whatever time that takes
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

const users = 48

// run is one demo under way.
type run struct {
	*rig.Rig
	o      Options
	screen screen
	before *Result // of round robin, once it is known
}

// newRun writes what a run needs into a folder.
func newRun(o Options, dir string) (*run, error) {
	r, err := rig.New(o.Options, dir)
	return &run{Rig: r, o: o, screen: screen{w: o.Out, tty: o.TTY}}, err
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
	r, err := newRun(o, dir)
	if err != nil {
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
	fmt.Fprintf(r.o.Out, "%d engines (simulated: 70B on four GPUs, %dk tokens of KV cache), a real Envoy,\n", r.o.Engines, rig.KVTokens/1000)
	fmt.Fprintf(r.o.Out, "%d users in chats of %d tenants with system prompts of about %d tokens.\n", users, chat.Shared, chat.SharedTokens)
	fmt.Fprintf(r.o.Out, "First Envoy places requests round robin, then it asks %d Grapevine replicas.\n\n", r.o.Replicas)
}

// load starts the workload against url.
func load(url string) (*workload.Runner, error) {
	return workload.Start(workload.Options{
		Source: workload.NewSource(chat, 1, vocab.Name, 0),
		Client: workload.NewClient(url, 2*users),
		Ideal:  workload.NewIdeal(vocab.New(), rig.BlockSize),
		Users:  users, ThinkScale: 1, Seed: 1, Timeout: 60 * time.Second,
	})
}

// roundRobin measures the engines behind an Envoy that asks nobody.
func (r *run) roundRobin(ctx context.Context) (Result, error) {
	fleet, addrs, err := r.OpenEngines()
	if err != nil {
		return Result{}, err
	}
	defer fleet.Close()
	e, url, err := r.StartEnvoy(ctx, "envoy-round-robin", envoyconf.Params{Kind: envoyconf.Plain, Endpoints: addrs})
	if err != nil {
		return Result{}, err
	}
	defer e.Stop(3 * time.Second)
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
