package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/report"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// Defaults of the matrix.
var (
	matrixLoads    = []float64{.85, .5, 1, 1.1}
	matrixReplicas = []int{1, 3}
	matrixSeeds    = []uint{901, 902, 903, 904, 905}
	matrixPolicies = []string{replay.Default, "unified", "load_only", "affinity", "epp"}
)

const (
	matrixRequests = 2000
	matrixWarmup   = .2
	matrixShare    = 50 * time.Millisecond
)

// matrix runs a fixed grid and appends to a file of CSV lines, which it can resume from.
type matrix struct {
	f        *replayFlags
	forms    []replay.Form
	policies []replay.Policy
	traces   []*trace.Trace
	out      io.Writer
	done     []report.Run
	rates    map[string]float64 // saturation by form and source
}

// playMatrix prints the plan, runs the cases that are missing in the file, and prints the results.
func (f *replayFlags) playMatrix(ctx context.Context, out io.Writer) error {
	m := matrix{f: f, forms: replay.Forms(), out: out, rates: map[string]float64{}}
	for _, spec := range f.policies {
		p, err := policyOf(spec)
		if err != nil {
			return err
		}
		m.policies = append(m.policies, p)
	}
	for _, spec := range f.traces {
		name, path := named(spec)
		t, err := trace.Open(path, trace.ReadOptions{Name: name})
		if err != nil {
			return err
		}
		m.traces = append(m.traces, t)
	}
	m.print()
	file, err := os.OpenFile(f.matrix, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if m.done, err = report.ReadCSV(file); err == nil {
		if len(m.done) == 0 {
			err = (&report.Report{}).WriteCSV(file)
		}
		err = errors.Join(err, m.play(ctx, file))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if file, err = os.Open(f.matrix); err != nil {
		return err
	}
	defer file.Close()
	runs, err := report.ReadCSV(file)
	if err != nil {
		return err
	}
	return report.Verdicts(out, runs, replay.Default)
}

func (m *matrix) print() {
	for _, form := range m.forms {
		fmt.Fprintf(m.out, "engines %s: 8, %s; %d blocks of 512 tokens\n", form.Fleet.Name, form.About, form.Engine.Blocks)
	}
	names := append([]string(nil), m.f.workloads...)
	for _, t := range m.traces {
		names = append(names, t.Name)
	}
	fmt.Fprintf(m.out, "loads %v of saturation, replicas %v, seeds %v, policies %v\n%d workloads: %v\n", m.f.loads, m.f.replicas, m.f.seeds, m.f.policies, len(names), names)
	fmt.Fprintf(m.out, "%d runs of %d requests or five sessions, whichever is longer\n",
		len(m.forms)*len(names)*len(m.f.loads)*len(m.f.replicas)*len(m.f.seeds)*len(m.policies), matrixRequests)
}

// play runs the grid. Forms and sources vary fastest, so that an interrupted run is a complete
// matrix with fewer loads, replicas or seeds.
func (m *matrix) play(ctx context.Context, file io.Writer) error {
	for _, seed := range m.f.seeds {
		for _, replicas := range m.f.replicas {
			for _, load := range m.f.loads {
				if err := m.playLevel(ctx, file, level{uint64(seed), replicas, load}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// level holds the parameters shared by all forms and sources.
type level struct {
	seed     uint64
	replicas int
	load     float64
}

func (m *matrix) playLevel(ctx context.Context, file io.Writer, l level) error {
	for i := range m.forms {
		for _, s := range m.sources() {
			rows, err := m.playCell(ctx, &m.forms[i], s, l)
			if err != nil {
				return err
			}
			if err := (&report.Report{Rows: rows, Seeds: []uint64{l.seed}}).AppendCSV(file); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *matrix) sources() []sweep.Source {
	var out []sweep.Source
	for _, name := range m.f.workloads {
		w, _ := trace.Named(name)
		out = append(out, sweep.WorkloadSource(w, 0, trace.GenerateOptions{Requests: matrixRequests}))
	}
	for _, t := range m.traces {
		out = append(out, sweep.TraceSource(t, 0, 0, trace.ScaleOptions{}))
	}
	return out
}

// playCell runs the policies that are missing in the file.
func (m *matrix) playCell(ctx context.Context, form *replay.Form, s sweep.Source, l level) ([]sweep.Row, error) {
	g := sweep.Grid{
		Loads: []float64{l.load}, Fleets: []replay.Fleet{form.Fleet}, Replicas: []int{l.replicas}, Share: []time.Duration{matrixShare},
		Seeds: []uint64{l.seed}, Blocks: []int{form.Engine.Blocks}, Warmup: matrixWarmup, Base: replay.Case{Engine: form.Engine},
	}
	want := report.Run{
		Source: s.Name, Fleet: form.Fleet.Name, Load: l.load, Replicas: strconv.Itoa(l.replicas), Seed: strconv.FormatUint(l.seed, 10),
	}
	for _, p := range m.policies {
		want.Policy = p.Name
		if !slices.ContainsFunc(m.done, want.SameRun) {
			g.Policies = append(g.Policies, p)
		}
	}
	if len(g.Policies) == 0 {
		return nil, nil
	}
	var err error
	if s.Saturation, err = m.saturation(ctx, form, s); err != nil {
		return nil, err
	}
	g.Sources = []sweep.Source{s}
	return sweep.Sweep(ctx, g, m.f.workers, nil)
}

// saturation returns the value of earlier runs in the file, or searches for a new one.
func (m *matrix) saturation(ctx context.Context, form *replay.Form, s sweep.Source) (float64, error) {
	key := form.Fleet.Name + " " + s.Name
	for i := range m.done {
		if r := &m.done[i]; r.Source == s.Name && r.Fleet == form.Fleet.Name {
			m.rates[key] = r.Rate / r.Load / form.Fleet.Capacity()
			break
		}
	}
	if m.rates[key] == 0 {
		c := replay.Case{Engine: form.Engine, Seed: 900}
		form.Fleet.Apply(&c)
		rate, err := sweep.FindSaturation(ctx, c, s)
		if err != nil {
			return 0, err
		}
		m.rates[key] = rate
	}
	return m.rates[key], nil
}
