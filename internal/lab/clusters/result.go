package clusters

import (
	"fmt"
	"io"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Result holds the measurements of a run.
type Result struct {
	Options   Options
	Seconds   float64
	Requests  int
	Away      int // sent to another cluster
	Retried   int // fell back to an engine at home
	Refused   int // served by no cluster
	Lost      int // refused although a cluster known at home could have served them
	Broken    int // answers that were cut off by the death of a cluster
	Loops     int // forwarded more than once
	BadHops   int // tokens that were not accepted
	Unsettled int // clusters whose state is wrong at others at the end
	Leaked    int // engines that still count requests that have ended
	Control   uint64
	firsts    []float64
	curve     [][]float64 // times to first token of the first cluster's users, by slot of the run
	missing   float64     // tokens that were computed
	input     float64
}

// slots is the number of points of a curve.
const slots = 48

func (r *Result) count(w *world, q *request, work endpoint.Work) {
	if r.curve == nil {
		r.curve = make([][]float64, slots)
	}
	r.firsts = append(r.firsts, q.first)
	if q.s.home == 0 {
		at := min(int(q.sent/w.o.Length*slots), slots-1)
		r.curve[at] = append(r.curve[at], q.first)
	}
	r.input += float64(work.Input)
	r.missing += float64(work.New)
}

// Quantile returns a quantile of the times to first token, in seconds.
func (r *Result) Quantile(q float64) float64 { return quantile(r.firsts, q) }

func quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[min(int(q*float64(len(list))), len(list)-1)]
}

// Held returns the share of prompt tokens that the serving engine had cached.
func (r *Result) Held() float64 {
	if r.input == 0 {
		return 0
	}
	return 1 - r.missing/r.input
}

// Spill returns the share of requests that left home.
func (r *Result) Spill() float64 { return float64(r.Away) / float64(max(r.Requests, 1)) }

// Row is one line of the table.
type Row struct {
	Clusters int     `json:"clusters"`
	Engines  int     `json:"engines"`
	Policy   Policy  `json:"policy"`
	Requests int     `json:"requests"`
	P50      float64 `json:"p50"` // seconds to first token
	P90      float64 `json:"p90"`
	P99      float64 `json:"p99"`
	Spill    float64 `json:"spill"`
	Held     float64 `json:"held"`
	Control  float64 `json:"control"` // bytes per second and cluster
}

// Row returns the run's line of the table.
func (r *Result) Row() Row {
	return Row{
		Clusters: r.Options.Clusters, Engines: r.Options.Engines, Policy: r.Options.Policy, Requests: r.Requests,
		P50: r.Quantile(.5), P90: r.Quantile(.9), P99: r.Quantile(.99), Spill: r.Spill(), Held: r.Held(),
		Control: float64(r.Control) / r.Seconds / float64(r.Options.Clusters),
	}
}

// WriteTable writes rows as a Markdown table.
func WriteTable(out io.Writer, rows []Row) {
	fmt.Fprintln(out, "| clusters × engines | policy | requests | first token p50 / p90 / p99 | left home | prompt tokens held | control bytes/s per cluster |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	for _, r := range rows {
		fmt.Fprintf(out, "| %d × %d | %s | %d | %v / %v / %v | %.1f%% | %.1f%% | %.0f |\n", r.Clusters, r.Engines, r.Policy, r.Requests,
			inMilliseconds(r.P50), inMilliseconds(r.P90), inMilliseconds(r.P99), 100*r.Spill, 100*r.Held, r.Control)
	}
}
