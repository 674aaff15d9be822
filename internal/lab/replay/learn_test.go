package replay

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// known returns the cost of the engine model, multiplied by a factor.
func known(m engine.Model, by float64) endpoint.Cost {
	return endpoint.Cost{
		Base: by * m.A / 1e3, PerToken: by * m.B / 1e6, PerPair: by * m.E / 1e9,
		Step: by * m.A / 1e3, PerSeq: by * m.C / 1e6, PerContext: by * m.D / 1e9,
	}
}

// rates are requests per second for each engine at which the fleet is about
// full.
var rates = map[string]float64{"chat": 1.68, "mixed": .88}

// windows is the number of windows, of a hundred requests each, that the test evaluates.
const windows = 8

// learning is the mean time to first token of the fleet's requests in windows
// of a hundred, from a share of the trace on, over seeds.
type learning [windows]float64

// play runs c for a workload and seeds. It calls change when the share of the requests has arrived,
// and adds up the results of later requests.
func (l *learning) play(t *testing.T, name string, c Case, share float64, change func(*simulation)) {
	t.Helper()
	const seeds = 12
	w, err := trace.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(seeds) {
		c.Trace = w.Generate(trace.GenerateOptions{Rate: rates[name] * 8 * .6, Length: 8 * time.Minute, Seed: seed + 1})
		c.Policy = policy(t, Default)
		checked, err := c.check()
		if err != nil {
			t.Fatal(err)
		}
		s, err := prepare(checked)
		if err != nil {
			t.Fatal(err)
		}
		from := -1
		s.Progress = func(done float64) {
			if done >= share && from < 0 {
				change(s)
				from = int(done * float64(len(c.Trace.Requests)))
			}
		}
		if share == 0 {
			from = 0
		}
		if err := s.play(context.Background()); err != nil {
			t.Fatal(err)
		}
		for k := range l {
			for i := from + k*100; i < from+(k+1)*100; i++ {
				l[k] += (s.outcomes[i].First - c.Trace.Requests[i].At).Seconds() / 100 / seeds
			}
		}
	}
}

// notWorse fails if a run with learned costs is more than a fifth worse than one with known costs,
// in any window.
func (l *learning) notWorse(t *testing.T, what string, than *learning) {
	t.Helper()
	for k := range l {
		if l[k] > 1.2*than[k] {
			t.Errorf("%s: %.3f s in window %d, known from the start %.3f s", what, l[k], k, than[k])
		}
	}
	t.Logf("%s: %.2f s, known: %.2f s", what, *l, *than)
}

// TestWrongStart holds, over whole runs, that constants three times off cost
// little until they are learned.
func TestWrongStart(t *testing.T) {
	parts.Full(t)
	for _, name := range []string{"chat"} {
		var right learning
		right.play(t, name, Case{Prior: known(engine.Model70B, 1)}, 0, nil)
		for _, by := range []float64{3, 1. / 3} {
			var wrong learning
			wrong.play(t, name, Case{Prior: known(engine.Model70B, by)}, 0, nil)
			wrong.notWorse(t, fmt.Sprintf("%s, %.1f times the truth", name, by), &right)
		}
	}
}

// TestEngineSlows holds, over whole runs, that an engine that slows to half is
// noticed soon enough.
func TestEngineSlows(t *testing.T) {
	parts.Full(t)
	slow := func(s *simulation) { s.stations[0].core.SetModel(engine.Model70B.SlowedBy(2)) }
	tell := func(s *simulation) {
		slow(s)
		s.replicas[0].endpoints[0].SetPriorCost(known(engine.Model70B, 2))
	}
	for _, name := range []string{"chat", "mixed"} {
		var learned, told learning
		learned.play(t, name, Case{}, .4, slow)
		told.play(t, name, Case{}, .4, tell)
		learned.notWorse(t, name, &told)
	}
}

// rotating returns ten requests per second with a prefix of the given number of blocks. Every ten
// seconds the prefix changes.
func rotating(blocks, requests int) *trace.Trace {
	t := &trace.Trace{Name: "rotating", BlockSize: 512, Sessions: requests, Length: time.Duration(requests) * time.Second / 10}
	for i := range requests {
		r := trace.Request{At: time.Duration(i) * time.Second / 10, Input: blocks*512 + 200, Output: 50, Session: int32(i)}
		for b := range blocks {
			r.Blocks = append(r.Blocks, trace.Block(i/100*blocks+b))
		}
		r.Blocks = append(r.Blocks, trace.Block(requests/100*blocks+blocks+i))
		t.Requests = append(t.Requests, r)
	}
	t.Blocks = requests/100*blocks + blocks + requests
	return t
}

// An engine with an eighth of the speed answers so late that it looks unhealthy. The picker must
// still learn from its times. If it ignores them, it assumes a normal speed and builds new prefixes
// there while fast engines are idle (311 of the last 1,500 requests waited for one).
func TestMuchSlowerEngines(t *testing.T) {
	c := Case{Trace: rotating(24, 3000), Policy: policy(t, Default), Endpoints: 8, Slow: []float64{1, 1, 1, 1, 8, 8, 8, 8}}
	r := run(t, c)
	late := 0
	for i := 1500; i < len(r.Outcomes); i++ {
		if r.Outcomes[i].First-c.Trace.Requests[i].At > 2*time.Second {
			late++
		}
	}
	if late > 15 {
		t.Errorf("%d of the last 1,500 requests waited more than 2 s, for a slow engine", late)
	}
}
