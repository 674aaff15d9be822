package roles

import (
	"context"
	"fmt"
	"io"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
)

// Ratio is the result of a fleet with a number of its engines for prefill.
type Ratio struct {
	Prefill, Decode int // 0 prefill: every engine serves whole requests
	Result          *replay.Result
	score           float64
}

// Suggest replays c on its number of engines: without separate roles, and with one engine up to
// half of the engines for prefill, the pair chosen by its price. It returns all results and the
// index of the best one. The best has the least sum of p90 first token and p90 time per token, each
// as a multiple of the lowest.
func Suggest(ctx context.Context, c replay.Case) (all []Ratio, best int, err error) {
	if c.Endpoints == 0 {
		c.Endpoints = 8
	}
	together, err := replay.PolicyByName(replay.Default)
	if err != nil {
		return nil, 0, err
	}
	split, err := replay.PolicyByName(replay.Apart)
	if err != nil {
		return nil, 0, err
	}
	for p := 0; p <= c.Endpoints/2; p++ {
		one := c
		one.Roles = make([]string, c.Endpoints)
		if one.Policy = together; p > 0 {
			one.Policy = split
			for i := range one.Roles {
				if one.Roles[i] = replay.RolePrefill; i >= p {
					one.Roles[i] = replay.RoleDecode
				}
			}
		}
		r, err := replay.Run(ctx, one)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, Ratio{Prefill: p, Decode: c.Endpoints - p, Result: r})
	}
	ttft, tpot := all[0].Result.TTFT.P90, all[0].Result.TPOT.P90
	for i := range all {
		ttft, tpot = min(ttft, all[i].Result.TTFT.P90), min(tpot, all[i].Result.TPOT.P90)
	}
	for i := range all {
		r := &all[i]
		if r.score = over(r.Result.TTFT.P90, ttft) + over(r.Result.TPOT.P90, tpot); r.score < all[best].score {
			best = i
		}
	}
	return all, best, nil
}

// Write prints a suggestion.
func Write(w io.Writer, source string, all []Ratio, best int) {
	fmt.Fprintf(w, "%s\n%-18s %14s %14s %14s %8s\n", source, "prefill : decode", "TTFT p50 ms", "TTFT p90 ms", "TPOT p90 ms", "remote")
	for i := range all {
		r, name := all[i].Result, fmt.Sprintf("%d : %d", all[i].Prefill, all[i].Decode)
		if all[i].Prefill == 0 {
			name = fmt.Sprintf("%d together", all[i].Decode)
		}
		mark := ""
		if i == best {
			mark = "  <- suggested"
		}
		fmt.Fprintf(w, "%-18s %14.0f %14.0f %14.1f %7.0f%%%s\n", name, 1e3*r.TTFT.P50, 1e3*r.TTFT.P90, 1e3*r.TPOT.P90, 100*r.Remote, mark)
	}
}

// over is a multiple, 0 of nothing.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
