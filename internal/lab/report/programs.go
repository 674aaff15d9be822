package report

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
)

// writePrograms writes the times of agent runs from their first arrival to their last answer, averaged
// over seeds. It writes nothing if no row has such runs.
func writePrograms(w io.Writer, rows []sweep.Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	some := false
	for i := range rows {
		c := &rows[i].Cell
		mean, ok := programsOf(rows[i].Runs)
		if !ok {
			continue
		}
		if !some {
			fmt.Fprintln(w)
			fmt.Fprintln(t, "seconds of agent runs\tload\tengines\treplicas\tpolicy\tmean\tp50\tp90\tp99\t")
		}
		some = true
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t\n", c.Source, loadText(c), c.Fleet, c.Replicas, c.Policy, mean.Mean, mean.P50, mean.P90, mean.P99)
	}
	return t.Flush()
}

func programsOf(runs []*replay.Result) (mean replay.Summary, ok bool) {
	n := 0.0
	for _, r := range runs {
		if r == nil || r.Programs == nil {
			continue
		}
		p := r.Programs
		mean.Mean, mean.P50, mean.P90, mean.P99 = mean.Mean+p.Mean, mean.P50+p.P50, mean.P90+p.P90, mean.P99+p.P99
		n++
	}
	if n == 0 {
		return mean, false
	}
	return replay.Summary{Mean: mean.Mean / n, P50: mean.P50 / n, P90: mean.P90 / n, P99: mean.P99 / n}, true
}
