package gate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/bench"
)

// play is one client against one process, and the processes whose CPU time the
// requests cost.
type play struct {
	client *bench.Client
	pids   []int
	idle   *idle     // use of CPU without requests; nil: none
	cost   []float64 // CPU seconds per request of each process, of the current round
	sent   float64   // messages per request, of the current round
}

// idle accumulates the CPU time that processes use while they get no requests.
type idle struct {
	spent []float64 // CPU seconds of each process
	took  float64   // seconds
}

// add counts CPU time spent within a time without requests.
func (i *idle) add(spent []float64, took float64) {
	if i.spent == nil {
		i.spent = make([]float64, len(spent))
	}
	for k, s := range spent {
		i.spent[k] += s
	}
	i.took += took
}

// lap holds the costs of one slice.
type lap struct {
	spent    []float64 // CPU seconds of each process
	took     float64   // seconds
	requests float64
	messages float64
}

// slice plays for the given time.
func (p *play) slice(ctx context.Context, length time.Duration) (lap, error) {
	before, err := usedCPU(p.pids)
	if err != nil {
		return lap{}, err
	}
	start := time.Now()
	r, err := p.client.Play(ctx, length)
	if err != nil {
		return lap{}, err
	}
	if r.Failed+r.Refused > 0 || r.Requests == 0 {
		return lap{}, fmt.Errorf("gate: %d requests, %d failed, %d refused: %w", r.Requests, r.Failed, r.Refused, errors.Join(r.Failure))
	}
	l := lap{took: time.Since(start).Seconds(), requests: float64(r.Requests), messages: float64(r.Messages)}
	l.spent, err = usedSince(p.pids, before)
	return l, err
}

// charge sets the costs of a slice without the idle CPU time of the processes.
func (p *play) charge(l lap) {
	p.cost = p.cost[:0]
	for i, spent := range l.spent {
		if p.idle != nil {
			spent -= p.idle.spent[i] / p.idle.took * l.took
		}
		p.cost = append(p.cost, spent/l.requests)
	}
	p.sent = l.messages / l.requests
}

// rounds plays the slices of all plays in random order, round after round. Then it calls each for
// every round, with the costs of that round. The first round warms up and does not count.
//
// While one play has its slice, the processes of the other plays are idle. Their CPU time is measured
// in this period, except right after their own slice. On a loaded machine, one measurement before the
// rounds can be off by half, and it biases every round in the same way.
func rounds(ctx context.Context, n int, length time.Duration, plays []*play, each func()) error {
	laps := make([][]lap, len(plays))
	last := -1
	for range n + 1 {
		for _, i := range rand.Perm(len(plays)) {
			var resting []*play
			var before [][]time.Duration
			for k, p := range plays {
				if k == i || k == last || p.idle == nil {
					continue
				}
				used, err := usedCPU(p.pids)
				if err != nil {
					return err
				}
				resting, before = append(resting, p), append(before, used)
			}
			start := time.Now()
			l, err := plays[i].slice(ctx, length)
			if err != nil {
				return err
			}
			laps[i], last = append(laps[i], l), i
			for k, p := range resting {
				spent, err := usedSince(p.pids, before[k])
				if err != nil {
					return err
				}
				p.idle.add(spent, time.Since(start).Seconds())
			}
		}
	}
	for round := 1; round <= n; round++ {
		for i, p := range plays {
			p.charge(laps[i][round])
		}
		each()
	}
	return nil
}

// usedCPU returns the CPU time that each process has used.
func usedCPU(pids []int) ([]time.Duration, error) {
	used := make([]time.Duration, len(pids))
	for i, pid := range pids {
		var err error
		if used[i], err = processCPU(pid); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// usedSince returns the CPU seconds that each process has used since before.
func usedSince(pids []int, before []time.Duration) ([]float64, error) {
	after, err := usedCPU(pids)
	if err != nil {
		return nil, err
	}
	spent := make([]float64, len(pids))
	for i := range pids {
		spent[i] = (after[i] - before[i]).Seconds()
	}
	return spent, nil
}

// measureIdle measures the CPU time of the processes while they get no requests.
func measureIdle(ctx context.Context, pids []int, length time.Duration) (*idle, error) {
	before, err := usedCPU(pids)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(length):
	}
	spent, err := usedSince(pids, before)
	if err != nil {
		return nil, err
	}
	out := &idle{}
	out.add(spent, time.Since(start).Seconds())
	return out, nil
}
