package engine

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"
)

// wake is the next moment at which an engine does something.
type wake struct {
	at time.Duration
	e  *Engine
	on int
}

type wakes []wake

func (w wakes) Len() int           { return len(w) }
func (w wakes) Less(i, j int) bool { return w[i].at < w[j].at }
func (w wakes) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *wakes) Push(x any)        { *w = append(*w, x.(wake)) }
func (w *wakes) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}

// benchRequest returns a turn typical of a public conversation trace: 12,000 tokens in, 343 out,
// blocks of 512, every other block cached.
func benchRequest(rng *rand.Rand, id uint64) Request {
	in := 512 + int(rng.ExpFloat64()*11_500)
	in = min(in, 120_000)
	r := Request{ID: id, Prompt: in, Output: 1 + int(rng.ExpFloat64()*343)}
	session := rng.IntN(2000)
	for i := range in / 512 {
		name := uint64(session)<<20 | uint64(i)
		if i > 12 {
			name = id<<20 | uint64(i)
		}
		r.Blocks = append(r.Blocks, Hash(mix(name)))
	}
	return r
}

// BenchmarkVirtualHour is an hour of eight engines at about 85% load, events
// on, driven by a plain event queue.
func BenchmarkVirtualHour(b *testing.B) {
	var steps, requests uint64
	for b.Loop() {
		steps, requests = virtualHour(b)
	}
	b.ReportMetric(float64(steps), "steps/op")
	b.ReportMetric(float64(requests), "requests/op")
}

func virtualHour(b *testing.B) (steps, requests uint64) {
	rng := rand.New(rand.NewPCG(1, 2))
	const engines, hour = 8, time.Hour
	var fleet [engines]*Engine
	var queue wakes
	var busy [engines]bool
	for i := range fleet {
		fleet[i] = mustNew(b, Config{BlockSize: 512, Blocks: 4000, Events: true})
	}
	arrival := time.Duration(0)
	for id := uint64(1); arrival < hour || len(queue) > 0; {
		if arrival < hour && (len(queue) == 0 || arrival <= queue[0].at) {
			on := rng.IntN(engines)
			mustSubmit(b, fleet[on], benchRequest(rng, id))
			id++
			if !busy[on] {
				busy[on] = true
				heap.Push(&queue, wake{arrival, fleet[on], on})
			}
			arrival += time.Duration(rng.ExpFloat64() / (0.63 * engines) * float64(time.Second))
			continue
		}
		w := &queue[0]
		r := w.e.Step()
		if r.Idle {
			busy[w.on] = false
			heap.Pop(&queue)
			continue
		}
		w.at += r.Duration
		_, d := w.e.Skip(arrival - w.at)
		w.at += d
		heap.Fix(&queue, 0)
	}
	for _, e := range fleet {
		steps += e.Stats().Steps
		requests += e.Stats().Finished
	}
	return steps, requests
}

// BenchmarkStep is one decode step of 128 sequences, every token reported.
func BenchmarkStep(b *testing.B) {
	for _, every := range []bool{false, true} {
		b.Run(map[bool]string{false: "quiet", true: "everyToken"}[every], func(b *testing.B) {
			e := mustNew(b, Config{BlockSize: 512, Blocks: 4_000_000, EveryToken: every})
			for id := range uint64(128) {
				mustSubmit(b, e, Request{ID: id, Prompt: 100 + int(id), Output: 1 << 23})
			}
			for e.Stats().Running < 128 {
				e.Step()
			}
			b.ReportAllocs()
			for b.Loop() {
				e.Step()
			}
		})
	}
}

func TestStepAllocations(t *testing.T) {
	e := mustNew(t, Config{BlockSize: 16, Blocks: 100_000, Events: true, EveryToken: true})
	blocks := names(1, 4000)
	turn := func() {
		for id := range uint64(32) {
			mustSubmit(t, e, Request{ID: id, Prompt: 1000, Output: 40, Blocks: blocks})
		}
		for !e.Idle() {
			e.Step()
		}
	}
	turn()
	turn()
	if n := testing.AllocsPerRun(20, turn); n > 0 {
		t.Errorf("%v allocations for 32 requests and their steps", n)
	}
}
