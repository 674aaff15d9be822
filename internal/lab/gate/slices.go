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
	idle   []float64 // cores that each process uses without requests
	cost   []float64 // CPU seconds per request of each process, of the last slice
	sent   float64   // messages per request, of the last slice
}

// slice plays for the given time and sets cost.
func (p *play) slice(ctx context.Context, length time.Duration) error {
	before := make([]time.Duration, len(p.pids))
	for i, pid := range p.pids {
		var err error
		if before[i], err = processCPU(pid); err != nil {
			return err
		}
	}
	start := time.Now()
	r, err := p.client.Play(ctx, length)
	if err != nil {
		return err
	}
	if r.Failed+r.Refused > 0 || r.Requests == 0 {
		return fmt.Errorf("gate: %d requests, %d failed, %d refused: %w", r.Requests, r.Failed, r.Refused, errors.Join(r.Failure))
	}
	took := time.Since(start).Seconds()
	p.cost = p.cost[:0]
	for i, pid := range p.pids {
		after, err := processCPU(pid)
		if err != nil {
			return err
		}
		spent := (after - before[i]).Seconds()
		if p.idle != nil {
			spent -= p.idle[i] * took
		}
		p.cost = append(p.cost, spent/float64(r.Requests))
	}
	p.sent = float64(r.Messages) / float64(r.Requests)
	return nil
}

// rounds plays the slices of all plays in random order, round after round, and calls each
// after every round. The first round warms up and does not count.
func rounds(ctx context.Context, n int, length time.Duration, plays []*play, each func()) error {
	for round := range n + 1 {
		order := rand.Perm(len(plays))
		for _, i := range order {
			if err := plays[i].slice(ctx, length); err != nil {
				return err
			}
		}
		if round > 0 {
			each()
		}
	}
	return nil
}

// measureIdle returns the cores that each process uses without requests.
func measureIdle(ctx context.Context, pids []int, length time.Duration) ([]float64, error) {
	before := make([]time.Duration, len(pids))
	for i, pid := range pids {
		var err error
		if before[i], err = processCPU(pid); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(length):
	}
	took := time.Since(start).Seconds()
	cores := make([]float64, len(pids))
	for i, pid := range pids {
		after, err := processCPU(pid)
		if err != nil {
			return nil, err
		}
		cores[i] = (after - before[i]).Seconds() / took
	}
	return cores, nil
}
