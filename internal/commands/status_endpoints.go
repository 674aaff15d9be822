package commands

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/statustext"
)

// writeEndpoints prints a row for each endpoint, and their problems below. A wide table also has the
// engine's version, its models, its event streams and their readers.
func writeEndpoints(w io.Writer, eps []server.EndpointStatus, wide bool) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "\nENDPOINT\tNAME\tHEALTH\tKNOWLEDGE\tLAG\tBLOCKS\tIN FLIGHT\tWAITING\tRUNNING\tKV USE\tPREDICTED\tOBSERVED"+columns(wide, "ENGINE", "MODELS", "STREAMS", "READERS"))
	for i := range eps {
		e := &eps[i]
		lag, blocks := statustext.Lag(e)
		waiting, running, use := statustext.Gauges(e)
		predicted, observed := statustext.Forecast(e)
		cells := []string{e.Address, e.Name, statustext.Health(e), statustext.Knowledge(e), lag, blocks, fmt.Sprint(e.InFlight), waiting, running, use, predicted, observed}
		fmt.Fprintln(tab, strings.Join(cells, "\t")+columns(wide, e.EngineVersion, strings.Join(e.Models, ","), streams(e), strings.Join(e.Readers, ",")))
	}
	tab.Flush()
	writeEndpointProblems(w, eps)
}

// columns returns further cells of a wide table, with "-" for empty ones.
func columns(wide bool, cells ...string) (out string) {
	if !wide {
		return ""
	}
	for _, c := range cells {
		out += "\t" + cmp.Or(c, "-")
	}
	return out
}

// streams lists the event streams of an endpoint.
func streams(e *server.EndpointStatus) string {
	var names []string
	for _, s := range e.Streams {
		names = append(names, s.Events)
	}
	return strings.Join(names, ",")
}

// writeEndpointProblems prints the problems of endpoints. Endpoints with the same problem share a line.
func writeEndpointProblems(w io.Writer, eps []server.EndpointStatus) {
	at := map[string][]string{}
	var order []string
	for i := range eps {
		for _, line := range statustext.Problems(&eps[i]) {
			if at[line] == nil {
				order = append(order, line)
			}
			at[line] = append(at[line], eps[i].Address)
		}
	}
	for _, line := range order {
		who := at[line]
		fmt.Fprint(w, strings.Join(who[:min(len(who), 3)], ", "))
		if more := len(who) - 3; more > 0 {
			fmt.Fprintf(w, " and %d more", more)
		}
		fmt.Fprintln(w, " "+line)
	}
}
