package live

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/demo"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
)

// Summary is the result of a run.
type Summary struct {
	RoundRobin, Grapevine demo.Result
	Killed                string // the killed replica
	Shared                bool   // replicas shared state
}

// Failed returns the number of failed requests of both phases.
func (s *Summary) Failed() uint64 { return s.RoundRobin.Failed + s.Grapevine.Failed }

// run is a running demo.
type run struct {
	*rig.Rig
	o      demo.Options
	screen screen
	before *demo.Result // of round robin, once measured
}

// Run runs the demo and returns its measurements. All started parts have ended when it returns,
// even if ctx ends early.
func Run(ctx context.Context, o demo.Options) (*Summary, error) {
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
	started, err := rig.New(o.Options, dir)
	if err != nil {
		return nil, err
	}
	r := &run{Rig: started, o: o, screen: screen{w: o.Out, tty: o.TTY}}
	r.intro()
	s := &Summary{Shared: o.Share != ""}
	s.RoundRobin, err = r.roundRobin(ctx)
	if err == nil {
		r.before = &s.RoundRobin
		err = r.grapevine(ctx, s)
	}
	switch {
	case ctx.Err() != nil:
		return nil, demo.ErrInterrupted
	case err != nil:
		return nil, fmt.Errorf("demo: %w", err)
	}
	return s, nil
}

// intro prints a description of the demo.
func (r *run) intro() {
	fmt.Fprintf(r.o.Out, "%d engines (simulated: 70B on four GPUs, %dk tokens of KV cache), a real Envoy,\n", r.o.Engines, rig.KVTokens/1000)
	fmt.Fprintf(r.o.Out, "%d users chat in %d tenants with system prompts of about %d tokens.\n", demo.Users, demo.Chat.Shared, demo.Chat.SharedTokens)
	fmt.Fprintf(r.o.Out, "First Envoy places requests round robin, then it asks %d Grapevine replicas.\n\n", r.o.Replicas)
}

// roundRobin measures the engines behind an Envoy without a picker.
func (r *run) roundRobin(ctx context.Context) (demo.Result, error) {
	fleet, addrs, err := r.OpenEngines()
	if err != nil {
		return demo.Result{}, err
	}
	defer fleet.Close()
	e, url, err := r.StartEnvoy(ctx, "envoy-round-robin", envoyconf.Params{Kind: envoyconf.Plain, Endpoints: addrs})
	if err != nil {
		return demo.Result{}, err
	}
	defer e.Stop(3 * time.Second)
	w, err := demo.StartChats(url)
	if err != nil {
		return demo.Result{}, err
	}
	defer demo.StopLoad(ctx, w)
	watch := &watch{run: r, fleet: fleet, runner: w, phase: "round robin", note: "Envoy sends requests round robin"}
	return watch.until(ctx, r.o.Phase)
}
