package replay

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Source makes a load for a rate and a seed.
type Source struct {
	Name string
	// Saturation is the rate per engine that counts as load 1, in requests
	// per second. 0: not known, and loads are rates per engine.
	Saturation float64
	Make       func(rate float64, seed uint64) *Trace
}

// TraceSource scales a trace. With capped above 0 each session keeps so many
// of its first turns, and the rate falls in proportion.
func TraceSource(t *Trace, saturation float64, capped int, o ScaleOptions) Source {
	from, share := t, 1.0
	if capped > 0 {
		from = t.Capped(capped)
		share = float64(len(from.Requests)) / float64(len(t.Requests))
	}
	return Source{Name: t.Name, Saturation: saturation, Make: func(rate float64, seed uint64) *Trace {
		o := o
		o.Rate, o.Seed = rate*share, seed
		return from.Scale(o)
	}}
}

// WorkloadSource generates a workload.
func WorkloadSource(w Workload, o GenerateOptions) Source {
	return Source{Name: w.Name, Saturation: w.Saturation, Make: func(rate float64, seed uint64) *Trace {
		o := o
		o.Rate, o.Seed = rate, seed
		return w.Generate(o)
	}}
}

// Grid is a set of cases: all combinations of its lists. An empty list stands
// for the value of Base.
type Grid struct {
	Sources   []Source
	Policies  []Policy
	Loads     []float64 // shares of saturation; required
	Endpoints []int
	Blocks    []int // of KV cache, for each engine
	Replicas  []int
	Share     []time.Duration
	Seeds     []uint64
	Base      Case
	Warmup    float64 // share of each trace's length that is not measured
}

// Cell is one combination of a Grid's lists, without the seed.
type Cell struct {
	Source    string        `json:"source"`
	Policy    string        `json:"policy"`
	Load      float64       `json:"load"`
	Rate      float64       `json:"rate"` // requests per second, over all engines
	Endpoints int           `json:"engines"`
	Blocks    int           `json:"blocks"`
	Replicas  int           `json:"replicas"`
	Share     time.Duration `json:"share_ns"`

	source int
	policy int
}

// Row is a cell and what its runs came to, in the order of Grid.Seeds.
type Row struct {
	Cell
	Runs []*Result `json:"runs"`
}

func (g *Grid) defaults() {
	orBase(&g.Endpoints, g.Base.Endpoints, 8)
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
		setDefault(&base, def)
		*list = []int{base}
	}
}

// cells lists the combinations, the policy varying fastest.
func (g *Grid) cells() []Cell {
	var out []Cell
	for s := range g.Sources {
		unit := g.Sources[s].Saturation
		setDefault(&unit, 1)
		for _, load := range g.Loads {
			for _, c := range g.fleets() {
				for p := range g.Policies {
					c.Source, c.Policy, c.Load, c.source, c.policy = g.Sources[s].Name, g.Policies[p].Name, load, s, p
					c.Rate = load * unit * float64(c.Endpoints)
					out = append(out, c)
				}
			}
		}
	}
	return out
}

// fleets lists the combinations of fleet sizes. One replica has nobody to
// share with.
func (g *Grid) fleets() []Cell {
	var out []Cell
	for _, n := range g.Endpoints {
		for _, blocks := range g.Blocks {
			for _, replicas := range g.Replicas {
				for k, share := range g.Share {
					if replicas == 1 && k > 0 {
						continue
					}
					out = append(out, Cell{Endpoints: n, Blocks: blocks, Replicas: replicas, Share: share})
				}
			}
		}
	}
	return out
}

// Sweep plays the grid on so many workers and returns its rows in order.
// progress, which may be nil, is called after every run, by one goroutine at
// a time. The first failure stops the sweep.
func Sweep(ctx context.Context, g Grid, workers int, progress func(done, all int)) ([]Row, error) {
	g.defaults()
	if len(g.Loads) == 0 {
		return nil, fmt.Errorf("%w: no load", ErrCase)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	rows := make([]Row, 0)
	for _, c := range g.cells() {
		rows = append(rows, Row{Cell: c, Runs: make([]*Result, len(g.Seeds))})
	}
	all := len(rows) * len(g.Seeds)
	jobs := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range max(min(workers, all), 1) {
		wg.Go(func() {
			for job := range jobs {
				row, seed := &rows[job/len(g.Seeds)], job%len(g.Seeds)
				result, err := g.run(ctx, &row.Cell, g.Seeds[seed])
				if err != nil {
					stop(err)
					continue
				}
				result.Outcomes = nil
				row.Runs[seed] = result
				mu.Lock()
				done++
				if progress != nil {
					progress(done, all)
				}
				mu.Unlock()
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

func (g *Grid) run(ctx context.Context, c *Cell, seed uint64) (*Result, error) {
	source := &g.Sources[c.source]
	one := g.Base
	one.Trace, one.Policy, one.Seed = source.Make(c.Rate, seed), g.Policies[c.policy], seed
	one.Endpoints, one.Engine.Blocks, one.Replicas, one.Share = c.Endpoints, c.Blocks, c.Replicas, c.Share
	one.Warmup = time.Duration(g.Warmup * float64(one.Trace.Length))
	result, err := Run(ctx, one)
	if err != nil {
		return nil, fmt.Errorf("%s, %s, load %g, seed %d: %w", c.Source, c.Policy, c.Load, seed, err)
	}
	return result, nil
}
