package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Write prints the summary.
func (s *PDSummary) Write(w io.Writer) {
	fmt.Fprintf(w, "\n%-20s %9s  %23s  %23s  %8s\n", "", "", "first token p50 / p90", "per token p50 / p90", "")
	fmt.Fprintf(w, "%-20s %9s  %11s %11s  %11s %11s  %8s\n", "prompt", "requests", "together", "apart", "together", "apart", "remote")
	for i := range s.Together {
		a, b := &s.Together[i], &s.Apart[i]
		fmt.Fprintf(w, "%-20s %4d %4d  %11s %11s  %11s %11s  %7.0f%%\n", a.Name, a.Requests, b.Requests,
			both(a.TTFT), both(b.TTFT), both(a.TPOT), both(b.TPOT), 100*b.Remote)
	}
	fmt.Fprintf(w, "\ntimes in milliseconds; longest bar %s\n", Short(s.longest()))
	for i := range s.Together {
		s.bars(w, "first token p90", s.Together[i].Name, s.Together[i].TTFT[1], s.Apart[i].TTFT[1])
	}
	if s.Killed != "" {
		fmt.Fprintf(w, "\n%s, a prefill engine, died on the way and came back.\n", s.Killed)
	}
	failed := uint64(0)
	for i := range s.Together {
		failed += s.Together[i].Failed + s.Apart[i].Failed
	}
	switch {
	case failed > 0:
		fmt.Fprintf(w, "FAILED: %d requests failed, the last: %v\n", failed, s.LastError)
	case !s.OK():
		fmt.Fprintln(w, "FAILED: no prompt was computed elsewhere.")
	default:
		fmt.Fprintln(w, "OK: no request failed.")
	}
}

func both(d [2]time.Duration) string {
	return fmt.Sprintf("%d / %d", d[0].Milliseconds(), d[1].Milliseconds())
}

func (s *PDSummary) longest() (most time.Duration) {
	for i := range s.Together {
		most = max(most, s.Together[i].TTFT[1], s.Apart[i].TTFT[1])
	}
	return most
}

// bars draws two times relative to the longest.
func (s *PDSummary) bars(w io.Writer, what, name string, together, apart time.Duration) {
	const width = 40
	for _, l := range []struct {
		kind string
		d    time.Duration
	}{{"together", together}, {"apart", apart}} {
		n := int(width * float64(l.d) / float64(max(s.longest(), 1)))
		fmt.Fprintf(w, "%s  %-20s %-9s %s\n", what, name, l.kind, strings.Repeat("#", n))
	}
}
