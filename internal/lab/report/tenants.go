package report

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
)

// writeTenants writes the means over runs by tenant and priority, for each row that has tenants.
func writeTenants(w io.Writer, rows []sweep.Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	written := false
	for i := range rows {
		list := meanTenants(rows[i].Runs)
		if len(list) == 0 {
			continue
		}
		if written {
			fmt.Fprintln(t, "\t\t\t\t\t\t\t\t\t\t\t")
		} else {
			fmt.Fprintln(w)
			fmt.Fprintln(t, "workload\tload\tpolicy\ttenant\tpriority\trequests\tshed\tengine time\tqueue p50\tp99\tTTFT p50\tp99\t")
		}
		written = true
		for n, one := range list {
			if n == mostTenants {
				fmt.Fprintf(t, "%s\t%s\t%s\t(%d more in --json)\t\t\t\t\t\t\t\t\t\n", rows[i].Source, loadText(&rows[i].Cell), rows[i].Policy, len(list)-n)
				break
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%.1f%%\t%.2f\t%.2f\t%.2f\t%.2f\t\n", rows[i].Source, loadText(&rows[i].Cell), rows[i].Policy,
				cmp.Or(one.Name, "-"), one.Priority, one.Requests, one.Shed, 100*one.Share, one.Queue.P50, one.Queue.P99, one.TTFT.P50, one.TTFT.P99)
		}
	}
	return t.Flush()
}

// mostTenants is the number of tenants per row that fit into the table.
const mostTenants = 12

// meanTenants returns the means over runs, in the order of the first.
func meanTenants(runs []*replay.Result) []replay.Tenant {
	type key struct {
		name     string
		priority int
	}
	var out []replay.Tenant
	at, seen := map[key]int{}, map[key]int{}
	for _, run := range runs {
		if run == nil {
			continue
		}
		for _, one := range run.Tenants {
			k := key{one.Name, one.Priority}
			if _, ok := at[k]; !ok {
				at[k] = len(out)
				out = append(out, replay.Tenant{Name: one.Name, Priority: one.Priority})
			}
			seen[k]++
			sum, n := &out[at[k]], float64(seen[k])
			sum.Requests += (one.Requests - sum.Requests) / seen[k]
			sum.Shed += (one.Shed - sum.Shed) / seen[k]
			for into, v := range map[*float64]float64{
				&sum.Share: one.Share, &sum.Queue.P50: one.Queue.P50, &sum.Queue.P99: one.Queue.P99, &sum.TTFT.P50: one.TTFT.P50, &sum.TTFT.P99: one.TTFT.P99,
			} {
				*into += (v - *into) / n
			}
		}
	}
	return out
}
