package sweep

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// Source makes a load for a rate and a seed.
type Source struct {
	Name string
	// Saturation is the rate per engine that counts as load 1, in requests
	// per second. 0: not known, and loads are rates per engine.
	Saturation float64
	// KeepShare is the share of requests that a transform keeps: the result of Make has this share
	// of the rate. 0 means all.
	KeepShare float64
	// Own is the rate of a trace that is replayed unchanged at every load. 0: loads determine the
	// rate.
	Own  float64
	Make func(rate float64, seed uint64) *trace.Trace
	// Sample makes a shorter load of the same kind, long enough to find the
	// saturation; nil: Make does.
	Sample func(rate float64, seed uint64) *trace.Trace
}

func (s *Source) sample(rate float64, seed uint64) *trace.Trace {
	if s.Sample != nil {
		return s.Sample(rate, seed)
	}
	return s.Make(rate, seed)
}

// TraceSource scales a trace. With capped above 0, each session keeps its first capped turns, and
// the rate falls in proportion.
func TraceSource(t *trace.Trace, saturation float64, capped int, o trace.ScaleOptions) Source {
	from, kept := t, 1.0
	if capped > 0 {
		from = t.Capped(capped)
		kept = float64(len(from.Requests)) / float64(len(t.Requests))
	}
	maker := func(o trace.ScaleOptions) func(float64, uint64) *trace.Trace {
		return func(rate float64, seed uint64) *trace.Trace {
			o := o
			o.Rate, o.Seed = rate*kept, seed
			return from.Scale(o)
		}
	}
	return Source{Name: t.Name, Saturation: saturation, KeepShare: kept, Make: maker(o)}
}

// OwnSource plays a trace unchanged: every request once, at its own time.
func OwnSource(t *trace.Trace, capped int, o trace.ScaleOptions) Source {
	if capped > 0 {
		t = t.Capped(capped)
	}
	own := t.AsRecorded(o)
	return Source{Name: t.Name, Own: own.Rate(), Make: func(float64, uint64) *trace.Trace { return own }}
}

// WorkloadSource generates a workload. With capped above 0, each session keeps its first capped
// turns, and the rate falls in proportion.
func WorkloadSource(w trace.Workload, capped int, o trace.GenerateOptions) Source {
	maker := func(o trace.GenerateOptions) func(rate float64, seed uint64) *trace.Trace {
		return func(rate float64, seed uint64) *trace.Trace {
			o.Rate, o.Seed = rate, seed
			t := w.Generate(o)
			if capped > 0 {
				t = t.Capped(capped)
			}
			return t
		}
	}
	short := o
	if short.Requests == 0 || short.Requests > sampleRequests {
		short.Length, short.Requests = 0, sampleRequests
	}
	s := Source{Name: w.Name, KeepShare: 1, Make: maker(o), Sample: maker(short)}
	if capped > 0 {
		sample := w.Generate(trace.GenerateOptions{Rate: 4, Speed: o.Speed, BlockSize: o.BlockSize})
		s.KeepShare = float64(len(sample.Capped(capped).Requests)) / float64(len(sample.Requests))
	}
	return s
}

// RunsSource generates agent runs. It has no saturation to search for.
func RunsSource(w trace.Runs, o trace.GenerateOptions) Source {
	return Source{Name: w.Name, KeepShare: 1, Make: func(rate float64, seed uint64) *trace.Trace {
		o := o
		o.Rate, o.Seed = rate, seed
		return w.Generate(o)
	}}
}

// sampleRequests is how many requests a load has by which saturation is found.
const sampleRequests = 1200

// Grid is a set of cases: all combinations of its lists. An empty list stands
// for the value of Base.
type Grid struct {
	Sources  []Source
	Policies []replay.Policy
	Loads    []float64 // shares of saturation; required
	Fleets   []replay.Fleet
	Blocks   []int // of KV cache, for each engine
	Replicas []int
	Share    []time.Duration
	Seeds    []uint64
	Base     replay.Case
	Warmup   float64 // share of each trace's length that is not measured
}

// Cell is one combination of a Grid's lists, without the seed.
type Cell struct {
	Source    string        `json:"source"`
	Policy    string        `json:"policy"`
	Load      float64       `json:"load"` // 0: the trace's own
	Rate      float64       `json:"rate"` // requests per second, over all engines
	Endpoints int           `json:"engines"`
	Fleet     string        `json:"fleet"` // kinds of engines
	Blocks    int           `json:"blocks"`
	Replicas  int           `json:"replicas"`
	Share     time.Duration `json:"share_ns"`

	source int
	policy int
	fleet  int
	full   float64 // rate before a transform
}

// Row is a cell and the results of its runs, in the order of Grid.Seeds.
type Row struct {
	Cell
	Runs []*replay.Result `json:"runs"`
}

func (g *Grid) defaults() {
	if len(g.Fleets) == 0 {
		g.Base.Endpoints = cmp.Or(g.Base.Endpoints, 8)
		g.Fleets = []replay.Fleet{replay.Engines(g.Base.Endpoints)}
	}
	orBase(&g.Blocks, g.Base.Engine.Blocks, 4000)
	orBase(&g.Replicas, g.Base.Replicas, 1)
	if len(g.Share) == 0 {
		g.Share = []time.Duration{g.Base.Share}
	}
	if len(g.Seeds) == 0 {
		g.Seeds = []uint64{g.Base.Seed}
	}
}

func orBase(list *[]int, base, def int) {
	if len(*list) == 0 {
		*list = []int{cmp.Or(base, def)}
	}
}

// Cells lists the combinations, the policy varying fastest. It fills in
// defaults.
func (g *Grid) Cells() []Cell {
	g.defaults()
	var out []Cell
	for s := range g.Sources {
		for _, load := range g.loadsOf(&g.Sources[s]) {
			for _, c := range g.fleets() {
				for p := range g.Policies {
					c.Source, c.Policy, c.Load, c.source, c.policy = g.Sources[s].Name, g.Policies[p].Name, load, s, p
					c.offer(&g.Sources[s], g.Fleets[c.fleet].Capacity())
					out = append(out, c)
				}
			}
		}
	}
	return out
}

// loadsOf returns the loads at which a source is played.
func (g *Grid) loadsOf(s *Source) []float64 {
	if s.Own > 0 {
		return []float64{0}
	}
	return g.Loads
}

// offer works out the rate.
func (c *Cell) offer(s *Source, capacity float64) {
	if s.Own > 0 {
		c.Rate, c.full = s.Own, s.Own
		return
	}
	c.full = c.Load * cmp.Or(s.Saturation, 1) * capacity
	c.Rate = c.full * cmp.Or(s.KeepShare, 1)
}

// fleets lists the combinations of fleet sizes. A single replica has no sharing dimension.
func (g *Grid) fleets() []Cell {
	var out []Cell
	for k, fleet := range g.Fleets {
		for _, blocks := range g.Blocks {
			for _, replicas := range g.Replicas {
				for i, share := range g.Share {
					if replicas == 1 && i > 0 {
						continue
					}
					out = append(out, Cell{
						Endpoints: len(fleet.Kinds), Fleet: fleet.Name, fleet: k, Blocks: blocks, Replicas: replicas, Share: share,
					})
				}
			}
		}
	}
	return out
}

// Sweep replays the grid with the given number of workers and returns its rows in order. It calls
// progress, if not nil, with the number of completed runs, including fractions of runs, from one
// goroutine at a time. The first failure stops the sweep.
func Sweep(ctx context.Context, g Grid, workers int, progress func(done float64, all int)) ([]Row, error) {
	for i := range g.Sources {
		if g.Sources[i].Own == 0 && len(g.Loads) == 0 {
			return nil, fmt.Errorf("%w: no load", replay.ErrCase)
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	rows := make([]Row, 0)
	for _, c := range g.Cells() {
		rows = append(rows, Row{Cell: c, Runs: make([]*replay.Result, len(g.Seeds))})
	}
	all := len(rows) * len(g.Seeds)
	jobs := make(chan int)
	var wg sync.WaitGroup
	tell := &counter{all: all, progress: progress}
	for range max(min(workers, all), 1) {
		wg.Go(func() {
			for job := range jobs {
				row, seed := &rows[job/len(g.Seeds)], job%len(g.Seeds)
				result, err := g.run(ctx, &row.Cell, g.Seeds[seed], tell.run())
				if err != nil {
					stop(err)
					continue
				}
				result.Outcomes = nil
				row.Runs[seed] = result
			}
		})
	}
	for job := range all {
		select {
		case jobs <- job:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(jobs)
	wg.Wait()
	return rows, context.Cause(ctx)
}

// counter adds up the progress of all workers.
type counter struct {
	mu       sync.Mutex
	done     float64
	all      int
	progress func(done float64, all int) // may be nil
}

// run returns the progress function of one run. It takes the completed share of the run.
func (t *counter) run() func(share float64) {
	last := 0.0
	return func(share float64) {
		if t.progress == nil {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.done, last = t.done+share-last, share
		t.progress(t.done, t.all)
	}
}

func (g *Grid) run(ctx context.Context, c *Cell, seed uint64, progress func(float64)) (*replay.Result, error) {
	source, fleet := &g.Sources[c.source], &g.Fleets[c.fleet]
	one := g.Base
	one.Trace, one.Policy, one.Seed, one.Progress = source.Make(c.full, seed), g.Policies[c.policy], seed, progress
	fleet.Apply(&one)
	one.Engine.Blocks, one.Replicas, one.Share = c.Blocks, c.Replicas, c.Share
	one.Warmup = time.Duration(g.Warmup * float64(one.Trace.Length))
	result, err := replay.Run(ctx, one)
	if err != nil {
		return nil, fmt.Errorf("%s, %s, load %g, seed %d: %w", c.Source, c.Policy, c.Load, seed, err)
	}
	progress(1)
	return result, nil
}
