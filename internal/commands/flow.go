package commands

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/programs"
)

func newFlow() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "flow",
		Short: "Show queues with their waiting requests and shares",
		Long: `Asks a running replica for its queues: the permits of each pool and how many are held, and
for each priority and flow its waiting requests, its permits and its fair share. Permits and
waiting requests of a flow are totals over all replicas.`,
		Example: "  grapevine flow\n  grapevine flow --admin 10.0.1.7:9090 -o json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var st server.Status
			if err := f.get(cmd.Context(), "/status", &st); err != nil {
				return err
			}
			if !f.output.IsText() {
				return f.output.Write(cmd.OutOrStdout(), st.Queues)
			}
			writeQueues(cmd.OutOrStdout(), st.Queues)
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

// writeQueues prints every queue with its flows.
func writeQueues(w io.Writer, queues []rules.Status) {
	if len(queues) == 0 {
		fmt.Fprintln(w, "no queues: no request has needed a permit yet, or flow control is off (see flowControl in the configuration)")
	}
	for i, q := range queues {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, queueLine(&q))
		tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tab, "PRIORITY\tFLOW\tWAITING\tPERMITS\tSHARE\tOLDEST HERE")
		for _, b := range q.Bands {
			fmt.Fprintf(tab, "%d\t(all)\t%d\t\t\t%.1f s\n", b.Priority, int64(b.Waiting)+b.Others, b.OldestS)
			for _, fl := range b.Flows {
				name := fl.Flow
				if name == "" {
					name = "(one queue for all)"
				} else if !budget.Shows(name) { // of a replica that shows names in clear
					name = budget.PrintableName(name)
				}
				fmt.Fprintf(tab, "\t%s\t%d\t%.0f\t%.1f\t\n", name, fl.Waiting, fl.InFlight, fl.Share)
			}
		}
		tab.Flush()
		for _, out := range slices.Sorted(maps.Keys(q.Outcomes)) {
			if n := q.Outcomes[out]; n > 0 {
				fmt.Fprintf(w, "%s %d\n", out, n)
			}
		}
	}
}

// programsLine describes the agent runs of one model.
func programsLine(p *programs.Status) string {
	line := fmt.Sprintf("agent runs %s: %d tracked, which hold %.0f tokens", cmp.Or(p.Model, "(unknown model)"), p.Programs, p.Footprint)
	if p.Limit > 0 {
		line += fmt.Sprintf(" of %.0f", p.Limit)
	} else {
		line += "; nothing waits, since an engine does not report the size of its memory"
	}
	if p.Kept > 0 {
		line += fmt.Sprintf("; %d requests wait for memory", p.Kept)
	}
	return line
}

// queueLine describes how full a pool is and whether its capacity is known.
func queueLine(q *rules.Status) string {
	model := q.Model
	if model == "" {
		model = "(unknown model)"
	}
	line := fmt.Sprintf("queue %s: %d of %d permits of %d endpoints held, %d requests wait here", model, q.InFlight, q.Permits, q.Endpoints, q.Waiting)
	if q.Backlog != nil && *q.Backlog > 0 {
		line += fmt.Sprintf("; the backlog at all replicas is %.1f s of the pool's work", *q.Backlog)
	}
	if q.Evicting > 0 {
		line += fmt.Sprintf("; %d requests in flight are being evicted", q.Evicting)
	}
	if q.Endpoints == 0 {
		line += "; no endpoint is ready"
	}
	if q.Silent > 0 {
		line += fmt.Sprintf("; %d of %d replicas are silent: capacity is taken from the engines' reports", q.Silent, q.Silent+q.Replicas)
	}
	if q.Lost > 0 {
		line += fmt.Sprintf("; %d permits belong to silent replicas", q.Lost)
	}
	return line
}
