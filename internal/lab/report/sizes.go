package report

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
)

// fewRequests is the number of requests up to which a prompt size gets no column.
const fewRequests = 20

// writeSizes writes p90 and p99 of the time to first token by prompt size, averaged over runs. It
// writes nothing if all prompts have the same size.
func writeSizes(w io.Writer, rows []sweep.Row) error {
	limits := commonSizes(rows)
	if len(limits) < 2 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w)
	fmt.Fprint(t, "TTFT p90 / p99 by prompt tokens\tload\tengines\treplicas\tpolicy\t")
	for _, most := range limits {
		fmt.Fprint(t, sizeText(most), "\t")
	}
	fmt.Fprintln(t)
	for i := range rows {
		c := &rows[i].Cell
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t", c.Source, loadText(c), c.Fleet, c.Replicas, c.Policy)
		for _, most := range limits {
			p90, p99, n := sizeOf(rows[i].Runs, most)
			if n == 0 {
				fmt.Fprint(t, "-\t")
				continue
			}
			fmt.Fprintf(t, "%.2f / %.2f\t", p90, p99)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// commonSizes returns the size limits that have enough requests in at least one row.
func commonSizes(rows []sweep.Row) []int {
	var out []int
	for _, most := range []int{1 << 10, 1 << 12, 1 << 14, 1 << 16, 0} {
		for i := range rows {
			if _, _, n := sizeOf(rows[i].Runs, most); n > fewRequests {
				out = append(out, most)
				break
			}
		}
	}
	return out
}

func sizeText(most int) string {
	if most == 0 {
		return "more"
	}
	return "up to " + strconv.Itoa(most>>10) + "K"
}

// sizeOf returns the means over runs, and the number of requests of all runs.
func sizeOf(runs []*replay.Result, most int) (p90, p99 float64, requests int) {
	seen := 0.0
	for _, run := range runs {
		if run == nil {
			continue
		}
		for _, s := range run.Sizes {
			if s.UpTo == most {
				seen, requests = seen+1, requests+s.Requests
				p90, p99 = p90+s.TTFT.P90, p99+s.TTFT.P99
			}
		}
	}
	return p90 / max(seen, 1), p99 / max(seen, 1), requests
}
