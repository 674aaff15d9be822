package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/translate"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/plugins"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// Kernel is one step of the product that runs on a single thread.
type Kernel struct {
	Name string
	step func() // runs it once
	stop func()
	// fresh returns the kernel with newly allocated memory, since memory addresses change the cost
	// by some percent; nil: there is only one kernel.
	fresh func() (*Kernel, error)
}

// calibration is a fixed amount of work: sorting, hashing and dependent loads, in about the
// mix of a decision. One step takes about 100 microseconds.
type calibration struct {
	numbers, scratch []float64
	table            []uint32
	sum              uint64
}

func newCalibration() *calibration {
	rng := rand.New(rand.NewPCG(1, 2))
	c := &calibration{numbers: make([]float64, 1024), scratch: make([]float64, 1024), table: make([]uint32, 1<<16)}
	for i := range c.numbers {
		c.numbers[i] = rng.Float64()
	}
	for i := range c.table {
		c.table[i] = rng.Uint32N(1 << 16)
	}
	return c
}

func (c *calibration) step() {
	copy(c.scratch, c.numbers)
	slices.Sort(c.scratch)
	at := uint32(c.sum) & 0xffff
	for i := range 8 << 10 {
		at = c.table[at] ^ uint32(i)&0xff
		c.sum = (c.sum ^ uint64(at)) * 0x9e3779b97f4a7c15
	}
}

// measure compares the kernel with the calibration loop: each sample is the CPU time per
// step, in units of one calibration step. It also returns heap allocations per step.
func (k *Kernel) measure(rounds int, slice time.Duration) (samples []float64, allocs float64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := newCalibration()
	per := func(step func()) float64 {
		steps, start := 0, threadCPU()
		for {
			step()
			steps++
			if used := threadCPU() - start; used >= slice {
				return float64(used) / float64(steps)
			}
		}
	}
	per(k.step)
	allocs = k.allocations()
	for range rounds {
		before := per(c.step)
		cost := per(k.step)
		samples = append(samples, cost/((before+per(c.step))/2))
	}
	return samples, allocs
}

// instances is how many fresh kernels share the rounds of a measurement.
const instances = 6

// measureFresh is measure over several instances of the kernel, which all stay in memory.
func (k *Kernel) measureFresh(rounds int, slice time.Duration) (samples []float64, allocs float64, err error) {
	if k.fresh == nil {
		samples, allocs = k.measure(rounds, slice)
		return samples, allocs, nil
	}
	all := []*Kernel{k}
	for range instances {
		one, err := k.fresh()
		if err != nil {
			return nil, 0, err
		}
		more, a := one.measure(max(rounds/instances, 1), slice)
		samples, allocs, all = append(samples, more...), a, append(all, one)
	}
	runtime.KeepAlive(all)
	return samples, allocs, nil
}

// allocations returns the smallest number of heap allocations per step over several trials:
// other goroutines allocate now and then.
func (k *Kernel) allocations() float64 {
	const trials, steps = 5, 200
	least := uint64(1) << 62
	for range trials {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range steps {
			k.step()
		}
		runtime.ReadMemStats(&after)
		least = min(least, after.Mallocs-before.Mallocs)
	}
	return float64(least / steps)
}

// Kernels returns the steps that are measured. modelDir is the folder of a real model.
func kernels(ctx context.Context, modelDir string, sizes []int) ([]*Kernel, error) {
	var list []*Kernel
	for _, n := range sizes {
		k, err := decision(n)
		if err != nil {
			return nil, err
		}
		list = append(list, k)
	}
	k, err := match(ctx, modelDir)
	return append(list, k), err
}

// decision chooses among n endpoints that differ in load, cache and gauges, with the
// default profile.
func decision(n int) (*Kernel, error) {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	specs := make([]endpoint.Spec, n)
	for i := range specs {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 8000)
		specs[i] = endpoint.Spec{Name: fmt.Sprint("e", i), Namespace: "ns", Addr: addr, Labels: map[string]string{"zone": "a"}}
	}
	pool.Set(specs)
	now := time.Unix(1_700_000_000, 0)
	for i, ep := range pool.Snapshot().Endpoints {
		pool.LoadTracker().SetRemote(ep, endpoint.Load{Requests: int64(i % 9), Waiting: int64(i % 3), Prefill: int64(i%3) * 1000, Tokens: int64(i) * 100, Rate: .5, LastFirst: now.UnixNano()})
		ep.SetGauges(endpoint.Gauges{At: now, Values: gauge.Values{Waiting: i % 4, Running: i % 9, KVUse: float64(i%10) / 10}, BlockSize: 16, Blocks: 20000})
	}
	profile := &cycle.Profile{Name: "default"}
	for _, part := range []struct {
		typ    string
		weight float64
	}{{"predicted-ttft-scorer", 1}, {"max-score-picker", 0}} {
		row, ok := plugins.Builtin().Find(part.typ)
		if !ok {
			return nil, fmt.Errorf("gate: no plugin type %s", part.typ)
		}
		made, err := row.New(nil)
		if err != nil {
			return nil, err
		}
		made.Join(profile, part.typ, part.weight)
	}
	handler := plugins.Single(profile)
	held := cycle.Match(func(_ context.Context, _ *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
		for k, ep := range eps {
			held[k].Run.Tokens[block.TierGPU] = int32(ep.ID % 5 * 512)
			held[k].Run.Blocks = held[k].Run.Total() / 16
		}
	})
	r, plan, table, seed := &request.Request{Kind: request.KindChat, Model: "m", Target: "m", InputTokens: 5000}, &cycle.Plan{}, sessions.New(0), uint64(1)
	return &Kernel{Name: fmt.Sprintf("decision/%d", n), step: func() {
		seed++
		c := cycle.New(cycle.Options{Pool: pool, Match: held, Sessions: table, Now: now, Seed: seed}, r)
		plan.Order = plan.Order[:0]
		_ = handler.Handle(c, plan) // errors only for custom profiles
		c.Free()
	}, stop: func() {}, fresh: func() (*Kernel, error) { return decision(n) }}, nil
}

// match parses, renders and matches a prompt of 40 KB that eight endpoints hold.
func match(ctx context.Context, modelDir string) (*Kernel, error) {
	const size, holders = 40 << 10, 8
	h := block.NewHasher(block.Seed{1})
	index, chunks := indexer.New(indexer.Options{Hasher: h}), approx.New(approx.Options{Hasher: h})
	models, err := prefix.OpenModels([]prefix.ModelOptions{{Name: "m", Path: modelDir}}, prefix.ModelsOptions{Hasher: h, Approx: chunks})
	if err != nil {
		return nil, err
	}
	if err := models.Registry().Wait(ctx); err != nil {
		models.Close()
		return nil, err
	}
	m := prefix.New(prefix.Options{Index: index, Approx: chunks, Models: models})
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	var specs []endpoint.Spec
	for i := range holders {
		specs = append(specs, endpoint.Spec{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)})
	}
	pool.Set(specs)
	eps := pool.Snapshot().Endpoints
	words := strings.Repeat("The prefix cache of an engine holds blocks of sixteen tokens. ", size/62)
	body, err := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]string{"role": "user", "content": words}}})
	if err != nil {
		return nil, err
	}
	r := &request.Request{Path: "/v1/chat/completions", Headers: noHeaders{}, Body: body}
	if err := request.Parse(r); err != nil {
		return nil, err
	}
	models.Fill(ctx, r)
	model := models.Model("m")
	ids := model.EncodeRendered(nil, r.Exact[0].Bytes)
	models.Release(r)
	for _, ep := range eps {
		src := block.Source{Endpoint: ep.ID}
		tr := translate.New(translate.Options{Source: src, Index: index, Hasher: h, Model: "m", Vocabulary: model})
		n := len(ids) / blockTokens
		e := decode.Event{Kind: decode.BlockStored, Tokens: ids[:n*blockTokens], BlockSize: blockTokens}
		for i := range n {
			e.Hashes = append(e.Hashes, block.EngineHash(i+1))
		}
		var d block.Delta
		tr.Translate(&decode.Batch{Events: []decode.Event{e}}, &d)
		index.Apply(src, &d)
	}
	held := make([]cycle.PrefixMatch, len(eps))
	return &Kernel{Name: "match/40KB/8x8", step: func() {
		_ = request.Parse(r) // has succeeded before
		models.Fill(ctx, r)
		clear(held)
		m.Match(ctx, r, eps, held)
		models.Release(r)
	}, stop: models.Close}, nil
}

type noHeaders struct{}

// Get implements request.Headers.
func (noHeaders) Get(string) string { return "" }
