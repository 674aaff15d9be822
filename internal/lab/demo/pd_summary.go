package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Write prints the summary.
func (s *PDSummary) Write(w io.Writer) {
	failed := uint64(0)
	for k := range s.Loads {
		l := &s.Loads[k]
		fmt.Fprintf(w, "\n%s\n%-20s %9s  %23s  %23s  %8s\n", l.Name, "", "", "first token p50 / p90", "per token p50 / p90", "")
		fmt.Fprintf(w, "%-20s %9s  %11s %11s  %11s %11s  %8s\n", "prompt", "requests", "together", "apart", "together", "apart", "remote")
		for i := range l.Together {
			a, b := &l.Together[i], &l.Apart[i]
			fmt.Fprintf(w, "%-20s %4d %4d  %11s %11s  %11s %11s  %7.0f%%\n", a.Name, a.Requests, b.Requests,
				both(a.TTFT), both(b.TTFT), both(a.TPOT), both(b.TPOT), 100*b.Remote)
			failed += a.Failed + b.Failed
		}
		fmt.Fprintf(w, "times in milliseconds; longest bar %s\n", Short(l.longest()))
		for i := range l.Together {
			l.bars(w, "first token p90", l.Together[i].Name, l.Together[i].TTFT[1], l.Apart[i].TTFT[1])
		}
		fmt.Fprintln(w, l.verdict())
	}
	if s.Killed != "" {
		fmt.Fprintf(w, "\n%s, a prefill engine, died on the way and came back.\n", s.Killed)
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

// payMargin is the difference of mean times from which roles pay or cost.
const payMargin = .03

// verdict reports whether roles pay for the load: by the mean time of a whole answer, over the requests
// of all classes.
func (l *PDLoad) verdict() string {
	var together, apart, requests float64
	for i := range l.Together {
		n := float64(l.Together[i].Requests)
		together, apart, requests = together+n*l.Together[i].whole().Seconds(), apart+n*l.Apart[i].whole().Seconds(), requests+n
	}
	if requests == 0 || together == 0 {
		return "nothing was measured"
	}
	word := "roles make no difference here"
	switch change := apart/together - 1; {
	case change < -payMargin:
		word = "roles pay here"
	case change > payMargin:
		word = "roles do not pay here"
	}
	return fmt.Sprintf("%s: a whole answer takes %.2f s together and %.2f s apart (%+.0f%%)", word, together/requests, apart/requests, 100*(apart/together-1))
}

func both(d [2]time.Duration) string {
	return fmt.Sprintf("%d / %d", d[0].Milliseconds(), d[1].Milliseconds())
}

func (l *PDLoad) longest() (most time.Duration) {
	for i := range l.Together {
		most = max(most, l.Together[i].TTFT[1], l.Apart[i].TTFT[1])
	}
	return most
}

// bars draws two times relative to the longest.
func (l *PDLoad) bars(w io.Writer, what, name string, together, apart time.Duration) {
	const width = 40
	for _, bar := range []struct {
		kind string
		d    time.Duration
	}{{"together", together}, {"apart", apart}} {
		n := int(width * float64(bar.d) / float64(max(l.longest(), 1)))
		fmt.Fprintf(w, "%s  %-20s %-9s %s\n", what, name, bar.kind, strings.Repeat("#", n))
	}
}
