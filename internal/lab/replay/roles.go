package replay

import (
	"context"
	"fmt"
	"io"
)

// RoleRatio is how a fleet did with so many of its engines for prefill.
type RoleRatio struct {
	Prefill, Decode int // 0 prefill: every engine serves whole requests
	Result          *Result
	score           float64
}

// SuggestRoles plays c on its number of engines: together, and with one to half of
// them for prefill, the pair by its price. It returns all, and which is best: the
// least sum of p90 first token and p90 time per token, each as a multiple of the best.
func SuggestRoles(ctx context.Context, c Case) (all []RoleRatio, best int, err error) {
	setDefault(&c.Endpoints, 8)
	together, err := PolicyByName(Default)
	if err != nil {
		return nil, 0, err
	}
	split, _ := apartByName(apart)
	for p := 0; p <= c.Endpoints/2; p++ {
		one := c
		one.Roles = make([]string, c.Endpoints)
		if one.Policy = together; p > 0 {
			one.Policy = split
			for i := range one.Roles {
				if one.Roles[i] = rolePrefill; i >= p {
					one.Roles[i] = roleDecode
				}
			}
		}
		r, err := Run(ctx, one)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, RoleRatio{Prefill: p, Decode: c.Endpoints - p, Result: r})
	}
	ttft, tpot := all[0].Result.TTFT.P90, all[0].Result.TPOT.P90
	for i := range all {
		ttft, tpot = min(ttft, all[i].Result.TTFT.P90), min(tpot, all[i].Result.TPOT.P90)
	}
	for i := range all {
		r := &all[i]
		if r.score = ratio(r.Result.TTFT.P90, ttft) + ratio(r.Result.TPOT.P90, tpot); r.score < all[best].score {
			best = i
		}
	}
	return all, best, nil
}

// WriteRoles prints a suggestion.
func WriteRoles(w io.Writer, source string, all []RoleRatio, best int) {
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

// Roles of a Kind.
const (
	rolePrefill = "prefill"
	roleDecode  = "decode"
)
