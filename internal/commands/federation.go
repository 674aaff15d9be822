package commands

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	objects "github.com/grapevine-epp/grapevine/cluster/federation/kube"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
)

func newFederation() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "federation",
		Short: "Show the other clusters as seen by a replica",
		Long: `Asks a running replica for the other clusters of its federation: their state, its age and
lease, round trip and traffic, their pools with load and filters, and which clusters know
the pools that this cluster exports. The exit code is 1 if there is no federation.`,
		Example: "  grapevine federation\n  grapevine federation --admin 10.0.1.7:9090 -o json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var st server.Status
			if err := f.get(cmd.Context(), "/status", &st); err != nil {
				return err
			}
			if st.Federation == nil {
				return fmt.Errorf("%s is not part of a federation (see --federation-config)", st.Name)
			}
			if !f.output.IsText() {
				return f.output.Write(cmd.OutOrStdout(), struct {
					*link.Status
					Objects *objects.Status        `json:"objects,omitempty"`
					Use     []remotecluster.Status `json:"remote_clusters,omitempty"`
				}{st.Federation, st.Objects, st.RemoteClusters})
			}
			writeFederation(cmd.OutOrStdout(), st.Federation)
			writeUse(cmd.OutOrStdout(), st.RemoteClusters)
			if st.Objects != nil {
				writeObjects(cmd.OutOrStdout(), st.Objects)
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.AddCommand(newFederationHub())
	return cmd
}

// writeFederation prints the clusters, their pools, and their view of this cluster's exports.
func writeFederation(w io.Writer, st *link.Status) {
	fmt.Fprintf(w, "%s: %s\n", st.Cluster, st.Line)
	if len(st.Secrets) > 1 {
		fmt.Fprintf(w, "%d secrets: %s; filters by %s\n", len(st.Secrets), strings.Join(st.Secrets, ", "), filtersBy(st))
	}
	if st.Problem != "" {
		fmt.Fprintf(w, "problem: %s\n", st.Problem)
	}
	fmt.Fprintln(w)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "CLUSTER\tSTATE\tREPLICA\tAGE\tLEASE\tRTT\tIN\tOUT\tASK HERE\tREASON")
	for _, c := range st.Clusters {
		age := "never"
		if c.AgeS >= 0 {
			age = fmt.Sprintf("%.1f s", c.AgeS)
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%.1f s\t%.1f ms\t%.0f B/s\t%.0f B/s\t%d\t%s\n",
			c.Name, c.State, c.Replica, age, c.LeaseS, c.RTTMS, c.Rates.In, c.Rates.Out, c.Sessions, c.Reason)
	}
	tab.Flush()
	fmt.Fprintln(w)
	tab = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "CLUSTER\tPOOL\tSTATE\tENDPOINTS\tREQUESTS\tWAIT\tSATURATION\tFILTER\tREASON")
	for _, c := range st.Clusters {
		for _, p := range c.Pools {
			filter := fmt.Sprintf("%d blocks, %d bytes", p.Blocks, p.Bytes)
			if p.Filter != "" {
				filter += " (" + p.Filter + ")"
			}
			fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%d\t%.2f s\t%.0f%%\t%s\t%s\n", c.Name, p.Pool, p.State, p.Endpoints, p.Requests, p.WaitS, 100*p.Saturation, filter, p.Reason)
		}
	}
	tab.Flush()
	fmt.Fprintln(w)
	tab = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "EXPORT\tHOT\tKNOWN TO")
	for _, e := range st.Exports {
		hot := strconv.Itoa(e.Hot)
		if e.HotNote != "" {
			hot += " (" + e.HotNote + ")"
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\n", e.Pool, hot, ackLine(&e))
	}
	tab.Flush()
	for _, reason := range slices.Sorted(maps.Keys(st.Refused)) {
		fmt.Fprintf(w, "refused, %s: %d\n", reason, st.Refused[reason])
	}
}

// filtersBy lists the secret with which each cluster builds its filters.
func filtersBy(st *link.Status) string {
	var list []string
	for i := range st.Clusters {
		c := &st.Clusters[i]
		for k := range c.Pools {
			if p := &c.Pools[k]; p.Secret != "" {
				list = append(list, fmt.Sprintf("%s (%s %s)", p.Secret, c.Name, p.Pool))
			}
		}
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, ", ")
}

// writeUse prints how a request would use the other clusters. A link can be live while the gateway
// is down.
func writeUse(w io.Writer, list []remotecluster.Status) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(w)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "CLUSTER\tREQUESTS\tGATEWAYS\tENDPOINTS\tLATE\tDOUBT")
	for i := range list {
		s := &list[i]
		fmt.Fprintf(tab, "%s\t%s\t%d\t%d\t%.0f ms\t%.0f%%\n", s.Cluster, usedAs(s), s.Gateways, s.Endpoints, s.Late, 100*s.MissRate)
	}
	tab.Flush()
}

// usedAs describes how a request that another cluster could take is handled.
func usedAs(s *remotecluster.Status) string {
	used := s.Result
	if s.Trial {
		used += ", on trial"
	}
	if s.Sending {
		used += ", sending"
	}
	return used
}

// writeObjects prints the federation's Kubernetes objects.
func writeObjects(w io.Writer, st *objects.Status) {
	fmt.Fprintln(w)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "OBJECT\tCONDITION\tMESSAGE")
	for _, p := range st.Pools {
		says := "not written yet"
		if p.Exported != "" {
			says = "Exported " + p.Exported + ", " + p.Reason
		}
		fmt.Fprintf(tab, "InferencePool %s\t%s\t%s\n", p.Name, says, p.Message)
	}
	for _, i := range st.Imports {
		fmt.Fprintf(tab, "InferencePoolImport %s\tAccepted %s\t%s\n", i.Name, i.Accepted, i.Message)
	}
	tab.Flush()
	if st.Waiting > 0 {
		fmt.Fprintf(w, "objects not up to date: %d\n", st.Waiting)
	}
	for _, p := range st.Problems {
		fmt.Fprintf(w, "problem: %s\n", p)
	}
}

// ackLine lists the clusters that have received an export.
func ackLine(e *link.OwnStatus) string {
	var parts []string
	if e.Draining {
		parts = append(parts, "(draining)")
	}
	if e.Omitted != "" {
		parts = append(parts, "not exported: "+e.Omitted)
	}
	for _, t := range e.Acknowledged {
		s := t.Cluster + ": " + t.State
		if t.Reason != "" {
			s += " (" + t.Reason + ")"
		}
		if t.Import != "" {
			s += ", import " + t.Import
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ", ")
}
