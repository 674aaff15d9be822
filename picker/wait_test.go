package picker

import (
	"math"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestViewWait holds that gauges bound the wait from below: what the book does
// not know of, memory, and the limit of sequences.
func TestViewWait(t *testing.T) {
	cost := endpoint.Cost{PerToken: 1e-3, Step: .02}
	queue := endpoint.Load{Requests: 12, Waiting: 2, Prefill: 1000, LastFirst: t0.UnixNano()}
	f := func(what string, v View, want float64) {
		t.Helper()
		v.Cost = &cost
		if got := v.Wait(t0, 500, 100); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	f("nothing", View{}, 0)
	f("the book alone", View{Load: queue}, 1)
	f("gauges that agree", View{Load: queue, Reading: endpoint.Reading{Sampled: true, Waiting: 2, Running: 10}}, 1)
	f("gauges too old", View{Load: queue, Reading: endpoint.Reading{Sampled: true, Age: time.Minute, Waiting: 8, Running: 10}}, 1)
	f("two more that others sent", View{Load: queue, Reading: endpoint.Reading{Sampled: true, Waiting: 4, Running: 10}}, 2)
	f("only others' requests", View{Reading: endpoint.Reading{Sampled: true, Waiting: 3, Running: 10}}, .02)
	// 500 of its own and 200 free: 300 of 9,800 used become free in 100 steps.
	f("memory", View{Reading: endpoint.Reading{Sampled: true, Running: 10, KVUse: .98, Capacity: 10_000}}, 300./9800*100*.02)
	// Forty small requests wait though a step would take them all.
	small := endpoint.Load{Requests: 50, Waiting: 40, Prefill: 400, LastFirst: t0.UnixNano()}
	f("limit of sequences", View{Load: small, Reading: endpoint.Reading{Sampled: true, Waiting: 40, Running: 10}}, 41./10*100*.02)
}

// TestViewWaitOfRoom: what was placed and has not come takes memory before a request
// does; what running ones share is no part of it.
func TestViewWaitOfRoom(t *testing.T) {
	cost := endpoint.Cost{Step: .02}
	f := func(what string, tokens, context int64, use, want float64) {
		t.Helper()
		v := View{Cost: &cost, Load: endpoint.Load{Requests: 10, Tokens: tokens, Context: context}, Reading: endpoint.Reading{Sampled: true, Running: 10, KVUse: use, Capacity: 10_000}}
		if got := v.WaitOfRoom(500, 100); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	f("nothing runs", 8000, 0, 0, 0)
	f("there is room", 9000, 6000, .6, 0)
	f("more is to come", 12_000, 6000, .6, 2500./6000*100*.02)
	f("half of it is shared", 12_000, 6000, .3, 0)
	f("all that runs, and as much again", 20_000, 10_000, 1, 10_500./10_000*100*.02)
}
