package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/pools"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/statustext"
	"github.com/grapevine-epp/grapevine/picker/discovery"
)

// adminFlags are the flags of commands that ask a running replica.
type adminFlags struct {
	admin  string
	pool   string
	output cli.Output
}

func (f *adminFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.admin, "admin", "127.0.0.1:9090", "admin address of a replica")
	addPool(cmd, &f.pool)
	cli.AddOutput(cmd, &f.output)
}

// addPool adds the flag that selects one pool of a replica that serves several.
func addPool(cmd *cobra.Command, pool *string) {
	cmd.Flags().StringVar(pool, "pool", "", "pool, of a replica that serves several")
}

// get reads a JSON page of the replica's admin port.
func (f *adminFlags) get(ctx context.Context, path string, into any) error {
	_, err := f.getWithHeader(ctx, path, into)
	return err
}

// getWithHeader is get that also returns the answer's header.
func (f *adminFlags) getWithHeader(ctx context.Context, path string, into any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := admin.Client(f.admin).Do(ctx, http.MethodGet, admin.PoolPath(f.pool)+path, nil, nil)
	if err != nil {
		return nil, cli.UsageIf(err, admin.ErrAddress)
	}
	defer resp.Body.Close()
	if path != "/status" {
		return resp.Header, json.NewDecoder(resp.Body).Decode(into)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var all pools.Status
	if err := json.Unmarshal(b, &all); err == nil && all.Pools != nil {
		return nil, &severalPools{all}
	}
	return resp.Header, json.Unmarshal(b, into)
}

// severalPools is returned when the status of one pool is read from a replica with several.
type severalPools struct{ status pools.Status }

// Error implements error.
func (e *severalPools) Error() string {
	var names []string
	for _, p := range e.status.Pools {
		names = append(names, p.Name)
	}
	return "this replica serves several pools: choose one with --pool: " + strings.Join(names, ", ")
}

// writePools prints the pools of a replica that serves several.
func writePools(w io.Writer, st *pools.Status) {
	fmt.Fprintf(w, "%s %s, version %s, up %s\n", st.Name, st.State, st.Version, time.Duration(st.UptimeS*float64(time.Second)).Round(time.Second))
	if st.Reason != "" {
		fmt.Fprintf(w, "  %s\n", st.Reason)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POOL\tEXT_PROC\tSTATE\tENDPOINTS\tPROBLEMS\tREASON")
	for _, p := range st.Pools {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\n", p.Name, cmp.Or(p.Address, "-"), p.State, p.Endpoints, p.Problems, p.Reason)
	}
	t.Flush()
}

func newStatus() *cobra.Command {
	var f adminFlags
	var group, wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a replica",
		Long: `Asks a running replica for its state: models, endpoints with the state of knowledge
about each, index size, and with --cluster the other replicas. Of a replica that serves
several pools it shows a line for each pool; --pool selects one. The exit code is 1 if the
replica or the selected pool is not ready.`,
		Example: "  grapevine status\n  grapevine status --admin 10.0.1.7:9090 --cluster -o json\n  grapevine status --wait",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			var st server.Status
			var unreachable error
			var several *severalPools // nil: the status is that of one pool
			for {
				st = server.Status{} // fields missing in an answer must not keep the previous values
				err := f.get(ctx, "/status", &st)
				if several = nil; errors.As(err, &several) {
					st.State, st.Reason, err = several.status.State, several.status.Reason, nil
				}
				if err == nil && (!wait || st.State == "ready") {
					break
				}
				if err != nil && (!wait || ctx.Err() != nil && unreachable == nil) {
					return err
				}
				if ctx.Err() == nil {
					unreachable = err
				}
				select {
				case <-ctx.Done():
					if unreachable != nil {
						return fmt.Errorf("not ready after %s: %w", timeout, unreachable)
					}
					return fmt.Errorf("not ready after %s: replica is %s: %s", timeout, st.State, st.Reason)
				case <-time.After(200 * time.Millisecond):
				}
			}
			switch {
			case !f.output.IsText():
				var out any = st
				if several != nil {
					out = several.status
				}
				if err := f.output.Write(cmd.OutOrStdout(), out); err != nil {
					return err
				}
			case several != nil:
				writePools(cmd.OutOrStdout(), &several.status)
			default:
				writeStatus(cmd.OutOrStdout(), &st, group, f.output == cli.Wide)
			}
			if st.State != "ready" {
				return cli.ExitCode(1)
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&group, "cluster", false, "also show the other replicas")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the replica is ready")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "time limit for --wait")
	return cmd
}

// configLine names the configuration in use, and why a newer one was refused.
func configLine(c *server.ConfigStatus) string {
	file := c.File
	if file == "" {
		file = "built-in profile"
	}
	line := fmt.Sprintf("config: %s, hash %s, read %s", file, c.Hash, c.Read.Format(time.DateTime))
	if first, rest, more := strings.Cut(c.Problem, "\n"); first != "" {
		line += "; the current file is refused: " + first
		if more {
			line += fmt.Sprintf(" (and %d more)", 1+strings.Count(rest, "\n"))
		}
	}
	return line
}

// servedLine reports whether proxies use the endpoints that the picker chose.
func servedLine(s *extproc.ServedStatus) string {
	line := fmt.Sprintf("answers: %d from the chosen endpoint, %d from a fallback, %d from other endpoints, %d not reported", s.Chosen, s.Next, s.Unnamed, s.Unknown)
	if s.Problem != "" {
		line += "; " + s.Problem
	}
	return line
}

// writeDiscovery prints the source of the endpoints, its age and its problems.
func writeDiscovery(w io.Writer, d *discovery.Status, now time.Time) {
	switch {
	case d.From == "":
		return
	case d.Read.IsZero():
		fmt.Fprintf(w, "endpoints: %s, not read yet\n", d.From)
	case d.Origin != "":
		fmt.Fprintf(w, "endpoints: %d of %s from %s, read %s ago\n", d.Endpoints, d.From, d.Origin, now.Sub(d.Read).Round(time.Second))
	default:
		fmt.Fprintf(w, "endpoints: %d from %s, read %s ago\n", d.Endpoints, d.From, now.Sub(d.Read).Round(time.Second))
	}
	for _, p := range d.Problems {
		fmt.Fprintf(w, "  %s\n", p)
	}
	for _, p := range d.Invalid {
		fmt.Fprintf(w, "  invalid: %s\n", p)
	}
	for _, p := range d.Notes {
		fmt.Fprintf(w, "  note: %s\n", p)
	}
}

// modelFilesLine reports the origin of a model's files, or why there are none and the remedy.
func modelFilesLine(m *modelfiles.Status) string {
	line := fmt.Sprintf("model files %s: %s", m.Model, m.State)
	if m.State == modelfiles.StateReady {
		line += fmt.Sprintf(", %d files from %s", len(m.Files), m.Origin)
		if m.Peer != "" {
			line += " " + m.Peer
		}
		if m.Revision != "" {
			line += ", revision " + m.Revision
		}
		return line
	}
	if why := cmp.Or(m.Error, m.Waiting); why != "" {
		line += " (" + why + ")"
	}
	if m.Remedy != "" {
		line += "; " + m.Remedy
	}
	return line
}

func writeStatus(w io.Writer, st *server.Status, group, wide bool) {
	writeProblems(w, st.Problems)
	fmt.Fprintf(w, "%s %s: %s, up %s, %d decisions\n", st.Name, st.Version, statustext.State(st), time.Duration(st.UptimeS*float64(time.Second)).Round(time.Second), st.Decisions)
	fmt.Fprintln(w, configLine(&st.Config))
	writeDiscovery(w, &st.Discovery, time.Now())
	fmt.Fprintf(w, "cluster: %s\n", st.Cluster.Line)
	if st.Federation != nil {
		fmt.Fprintf(w, "federation: %s\n", st.Federation.Line)
	}
	for i := range st.RemoteClusters {
		fmt.Fprintf(w, "remote cluster: %s %s\n", st.RemoteClusters[i].Cluster, usedAs(&st.RemoteClusters[i]))
	}
	fmt.Fprintln(w, servedLine(&st.Served))
	if st.Cluster.Fallback != "" {
		fmt.Fprintf(w, "meanwhile: %s\n", st.Cluster.Fallback)
	}
	fmt.Fprintf(w, "index: %d blocks, %d entries, %.1f MB; approximate %.1f MB\n", st.Index.Blocks, st.Index.Entries, float64(st.Index.Bytes)/1e6, float64(st.Index.ApproxBytes)/1e6)
	for _, m := range st.Models {
		fmt.Fprintln(w, modelLine(&m))
	}
	for i := range st.ModelFiles {
		fmt.Fprintln(w, modelFilesLine(&st.ModelFiles[i]))
	}
	if st.NoModel > 0 {
		fmt.Fprintf(w, "models not configured: %d requests\n", st.NoModel)
	}
	for _, q := range st.Queues {
		fmt.Fprintln(w, queueLine(&q))
	}
	for i := range st.Programs {
		fmt.Fprintln(w, programsLine(&st.Programs[i]))
	}
	writePD(w, st.PD)
	writeEndpoints(w, st.Endpoints, wide)
	if group {
		fmt.Fprintln(w)
		writeMembers(w, st)
	}
}

// writeProblems prints the problems that somebody has to act on, with effect and actions, and the
// notices in one line each.
func writeProblems(w io.Writer, list []problems.Found) {
	for i := range list {
		f := &list[i]
		fmt.Fprintln(w, statustext.Problem(f))
		if f.Severity == problems.Notice {
			continue
		}
		fmt.Fprintf(w, "  effect: %s\n", f.Effect)
		for k, action := range f.Action {
			label := "  do:    "
			if k > 0 {
				label = "         "
			}
			fmt.Fprintf(w, "%s %s\n", label, action)
		}
	}
	if problems.Urgent(list) > 0 {
		fmt.Fprintln(w, "grapevine help CODE has more on each problem.")
	}
	if len(list) > 0 {
		fmt.Fprintln(w)
	}
}

// modelLine describes how prompts of a model are matched.
func modelLine(m *prefix.ModelStatus) string {
	line := fmt.Sprintf("model %s: %s", m.Name, m.State)
	if len(m.Notes) > 0 {
		line += " (" + strings.Join(m.Notes, "; ") + ")"
	}
	line += fmt.Sprintf(", rendered %d", m.Rendered)
	for _, reason := range slices.Sorted(maps.Keys(m.Missed)) {
		line += fmt.Sprintf(", %s %d", reason, m.Missed[reason])
	}
	if m.Error != "" {
		line += ": " + m.Error
	}
	if m.Media != "" {
		line += "\n  media: " + m.Media
	}
	return line
}

func newMembers() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:     "members",
		Short:   "Show the group as seen by one replica",
		Long:    "Prints every replica with its address, state, round trip, traffic, lag, and whether its knowledge is equal.",
		Example: "  grapevine members --admin 10.0.1.7:9090",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var st server.Status
			if err := f.get(cmd.Context(), "/status", &st); err != nil {
				return err
			}
			if !f.output.IsText() {
				return f.output.Write(cmd.OutOrStdout(), st.Members)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n", st.Cluster.Line)
			writeMembers(cmd.OutOrStdout(), &st)
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

func writeMembers(w io.Writer, st *server.Status) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "MEMBER\tADDRESS\tZONE\tVERSION\tSTATE\tPHASE\tRTT\tCLOCK\tIN\tOUT\tREADS\tBEHIND\tDIFFER\tDROPPED")
	for _, m := range st.Members {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t%s\t%.1f ms\t%s\t%.0f B/s\t%.0f B/s\t%d\t%d\t%d\t%d\n",
			m.Name, m.Addr, cmp.Or(m.Zone, "-"), m.Version, m.State, m.Phase, m.RTTMS, statustext.Clock(&m), m.InBPS, m.OutBPS, m.Reading, m.Behind, m.Differ, m.Dropped)
	}
	tab.Flush()
}
