package sites

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/demo"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/wan"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// Load and environment of [Run].
const (
	delay  = 30 * time.Millisecond // one-way delay between the clusters
	lease  = 5 * time.Second
	step   = 15 * time.Second // length of a measured scene
	settle = 8 * time.Second  // drain time before scenes that need empty queues
	least  = .7               // share of the offered requests that must end
	rate   = 4.5              // requests per second per engine of A: 140% of its capacity
	asks   = 12               // prompts of each kind in the hot-prompt scenes
	beyond = 2 * time.Second  // extra time after the lease until states must be correct
)

// articles is the load of A's users. No prompt repeats.
var articles = workload.Kind{Name: "article", Turns: 1, UserTokens: 3000, Spread: .2, Answer: 40}

// Prompts of the hot-prompt scenes. A prefill takes about ten round trips for long prompts, and
// less than one for short prompts.
var (
	longPrompt  = workload.Kind{Name: "long", Turns: 1, UserTokens: 8000, Spread: .05, Answer: 4}
	shortPrompt = workload.Kind{Name: "short", Turns: 1, UserTokens: 150, Spread: .05, Answer: 4}
)

// Summary holds the results of [Run].
type Summary struct {
	Engines, Replicas int // of each cluster
	Hot               []HotScene
	Scenes            []Scene
	LastError         error
}

// HotScene holds the results of prompts that A's users sent while both clusters were idle.
type HotScene struct {
	Name   string
	Asked  int
	AtB    int // served by B
	Failed int
	Must   bool // must go to B; otherwise they must stay
	TTFT   time.Duration
}

// Scene holds the results of one scene under load. Requests count in the scene in which they began.
type Scene struct {
	Name                  string
	Requests, Failed, AtB int
	TTFT50, TTFT90        time.Duration
	Broken                int           // in flight from B when the scene began and broken by the scene; not part of Failed
	Known                 time.Duration // until every replica of A saw the new state of B; 0: no change
	Limit                 time.Duration // of Known
	Helped                bool          // B must serve a share
	Least                 int           // requests that must end in it

	change, changed time.Time // start and end of the action
	begun, ended    time.Time // of the measured part
}

// answered is an ended request of the load.
type answered struct {
	begun, at time.Time
	err       error
	first     time.Duration
	engine    string
}

// run is a running [Run].
type run struct {
	o     demo.Options
	dir   string
	a, b  *site
	out   *Summary
	start time.Time

	mu    sync.Mutex
	ended []answered
}

// Run joins two clusters on this machine by mutual TLS over a link with a delay. It shows how A's
// users are served while B is idle, connected, cut off, connected again, and dead. All processes
// have ended when it returns.
func Run(ctx context.Context, o demo.Options) (*Summary, error) {
	o.Step, o.Warm = cmp.Or(o.Step, step), cmp.Or(o.Warm, settle)
	o.Engines = max(o.Engines/2, 1)
	dir, err := os.MkdirTemp("", "grapevine-clusters-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c := &run{o: o, dir: dir, start: time.Now(), out: &Summary{Engines: o.Engines, Replicas: o.Replicas}}
	err = c.open(ctx)
	if err == nil {
		err = c.play(ctx)
	}
	for _, s := range []*site{c.a, c.b} {
		if s != nil {
			s.close(ctx)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, demo.ErrInterrupted
	case err != nil:
		return nil, fmt.Errorf("demo: %w", err)
	}
	return c.out, nil
}

// open starts both clusters and waits until each sees the other.
func (c *run) open(ctx context.Context) error {
	fmt.Fprintf(c.o.Out, "Two clusters, A and B, of %d engines (simulated: 70B on four GPUs), %d replicas and a real Envoy each,\n", c.o.Engines, c.o.Replicas)
	fmt.Fprintf(c.o.Out, "%v apart, joined by mutual TLS. A's users ask for 140%% of what A can do; B has nothing to do.\n\n", 2*delay)
	if err := wan.Authorize(c.dir, "a", "b"); err != nil {
		return err
	}
	var err error
	if c.a, err = c.ways("a"); err != nil {
		return err
	}
	if c.b, err = c.ways("b"); err != nil {
		return err
	}
	if err := c.b.open(ctx, c.o, c.a); err != nil {
		return fmt.Errorf("cluster b: %w", err)
	}
	if err := c.a.open(ctx, c.o, c.b); err != nil {
		return fmt.Errorf("cluster a: %w", err)
	}
	return c.await(ctx, c.a, "candidate", time.Minute)
}

// play performs the scenes.
func (c *run) play(ctx context.Context) error {
	if err := c.hotScenes(ctx); err != nil {
		return err
	}
	w, err := workload.Start(workload.Options{
		Source: workload.NewSource(articles, 1, vocab.Name, 0), Client: workload.NewClient(c.a.URL, 512), Rate: rate * float64(c.o.Engines),
		Seed: 1, Timeout: waitTimeout, Ended: c.note,
	})
	if err != nil {
		return err
	}
	defer stopLoad(ctx, w)
	c.cut()
	fmt.Fprintf(c.o.Out, "\n%s\n", sceneHeader)
	for _, s := range c.script() {
		if err := c.scene(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	stopLoad(ctx, w)
	c.count()
	return nil
}

// action is a scene: its steps, the state of B that A must then see, and the drain time of A's
// queues before the measurement.
type action struct {
	name   string
	do     func() error
	see    string
	within time.Duration
	settle time.Duration
	helped bool
}

func (c *run) script() []action {
	nothing := func() error { return nil }
	return []action{
		{name: "A alone (link cut)", do: nothing},
		{name: "with import", do: c.heal, see: "candidate", within: lease, settle: c.o.Warm, helped: true},
		{name: "link is cut", do: func() error { c.cut(); return nil }, see: "silent", within: lease + beyond},
		{name: "link is back", do: c.heal, see: "candidate", within: lease, settle: c.o.Warm, helped: true},
		{name: "B is killed (kill -9)", do: c.b.kill, see: "silent", within: lease + beyond},
	}
}

// scene performs one action and measures the load for a step.
func (c *run) scene(ctx context.Context, a action) error {
	s := Scene{Name: a.name, Limit: a.within, Helped: a.helped, change: time.Now()}
	if err := a.do(); err != nil {
		return err
	}
	s.changed = time.Now()
	if a.see != "" {
		if err := c.await(ctx, c.a, a.see, time.Minute); err != nil {
			return err
		}
		s.Known = time.Since(s.changed)
	}
	if err := pause(ctx, a.settle); err != nil {
		return err
	}
	s.begun = s.changed
	if a.settle > 0 {
		s.begun = time.Now()
	}
	if err := pause(ctx, c.o.Step-min(time.Since(s.begun), c.o.Step)); err != nil {
		return err
	}
	s.ended = time.Now()
	s.Least = int(least * rate * float64(c.o.Engines) * s.ended.Sub(s.begun).Seconds())
	c.out.Scenes = append(c.out.Scenes, s)
	c.count()
	fmt.Fprintf(c.o.Out, "%5.1fs  %s\n", time.Since(c.start).Seconds(), c.out.Scenes[len(c.out.Scenes)-1].line())
	return nil
}

// note records the end of a request.
func (c *run) note(at time.Time, o *workload.Outcome) {
	err := o.Err
	if o.Aborted {
		err = errUnanswered
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = append(c.ended, answered{begun: at.Add(-o.Latency), at: at, err: err, first: o.TTFT, engine: o.Engine})
}

// count updates the results of all scenes from the requests that have ended.
func (c *run) count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.out.Scenes {
		c.out.Scenes[i].count(c.ended, c.b.engine, c.changes(i))
	}
	for i := range c.ended {
		if err := c.ended[i].err; err != nil {
			c.out.LastError = err
		}
	}
}

// changes returns the times of cuts and kills from scene i on.
func (c *run) changes(i int) (list []time.Time) {
	for _, s := range c.out.Scenes[i:] {
		if !s.Helped {
			list = append(list, s.change)
		}
	}
	return list
}

// hotScenes sends A prompts that B has cached, and prompts that no engine has cached.
func (c *run) hotScenes(ctx context.Context) error {
	fmt.Fprintf(c.o.Out, "%s\n", hotHeader)
	for i, s := range []struct {
		name string
		kind workload.Kind
		hot  bool
		must bool
	}{
		{"8,000 tokens, hot in B", longPrompt, true, true},
		{"150 tokens, hot in B", shortPrompt, true, false},
		{"8,000 tokens, nowhere", longPrompt, false, false},
	} {
		src := workload.NewSource(s.kind, uint64(100+i), vocab.Name, 0)
		if s.hot {
			if _, err := ask(ctx, c.b, src); err != nil {
				return err
			}
			if err := c.awaitReports(ctx); err != nil {
				return err
			}
		}
		got, err := ask(ctx, c.a, src)
		if err != nil {
			return err
		}
		scene := HotScene{Name: s.name, Must: s.must}
		for _, o := range got {
			scene.Asked++
			if o.Err != nil {
				scene.Failed++
				c.out.LastError = o.Err
			} else if c.b.engine[o.Engine] {
				scene.AtB++
			}
			scene.TTFT += o.TTFT / time.Duration(len(got))
		}
		c.out.Hot = append(c.out.Hot, scene)
		fmt.Fprintln(c.o.Out, scene.line())
	}
	return nil
}

// ask sends all prompts of a source to a cluster, one after the other.
func ask(ctx context.Context, s *site, src *workload.Source) (list []*workload.Outcome, err error) {
	client := workload.NewClient(s.URL, 1)
	defer client.Close()
	for i := range asks {
		turn, ok := src.Session(i).Next("")
		if !ok {
			return nil, errors.New("a session without a turn")
		}
		list = append(list, client.Do(ctx, turn))
	}
	return list, ctx.Err()
}

// cut cuts all links between the clusters.
func (c *run) cut() {
	for _, w := range c.wires() {
		w.Cut()
	}
}

func (c *run) heal() error {
	for _, w := range c.wires() {
		if err := w.Heal(); err != nil {
			return err
		}
	}
	return nil
}

func (c *run) wires() (list []*wan.Wire) {
	for _, s := range []*site{c.a, c.b} {
		if s != nil {
			list = append(append(list, s.controls...), s.gateway)
		}
	}
	return list
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitTimeout is the timeout of a request.
const waitTimeout = time.Minute

var errUnanswered = errors.New("no answer until the end")

// stopLoad waits for open requests until ctx ends.
func stopLoad(ctx context.Context, w *workload.Runner) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	w.Stop(ctx)
}
