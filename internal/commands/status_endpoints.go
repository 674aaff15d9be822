package commands

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/server"
)

// staleGauges is the age in seconds from which an engine's gauges are no longer shown.
const staleGauges = 5

// writeEndpoints prints a row for each endpoint, and their problems below. A wide table also has the
// engine's version, its models, its event streams and their readers.
func writeEndpoints(w io.Writer, eps []server.EndpointStatus, wide bool) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "\nENDPOINT\tNAME\tHEALTH\tKNOWLEDGE\tLAG\tBLOCKS\tIN FLIGHT\tWAITING\tRUNNING\tKV USE\tPREDICTED\tOBSERVED"+columns(wide, "ENGINE", "MODELS", "STREAMS", "READERS"))
	for i := range eps {
		e := &eps[i]
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s%s\n", e.Address, e.Name, trusted(e), known(e), follows(e), e.InFlight, gauges(e), forecast(e),
			columns(wide, e.EngineVersion, strings.Join(e.Models, ","), streams(e), strings.Join(e.Readers, ",")))
	}
	tab.Flush()
	writeTroubles(w, eps)
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

// trusted describes the health of an endpoint.
func trusted(e *server.EndpointStatus) string {
	h := &e.Health
	switch {
	case h.State == "healthy" && !e.Up: // no verdict yet
		return "down"
	case h.State == "healthy", h.State == "unreached":
		return h.State
	case h.Overruled:
		return h.State + ", used"
	}
	return fmt.Sprintf("%s, %.0f%%", h.State, 100*h.Share)
}

// known describes the state of knowledge about an endpoint, with its age.
func known(e *server.EndpointStatus) string {
	if e.AgeMS == 0 {
		return e.Knowledge
	}
	return fmt.Sprintf("%s, up to %.1f s behind", e.Knowledge, e.AgeMS/1000)
}

// follows returns the lag of an endpoint's events and the number of blocks from these; "-" without
// events.
func follows(e *server.EndpointStatus) string {
	if len(e.Streams) == 0 && e.Blocks == 0 {
		return "-\t-"
	}
	return fmt.Sprintf("%.1f ms\t%d", e.LagMS, e.Blocks)
}

// gauges returns the gauges of an endpoint's engine; "-" if they are unknown.
func gauges(e *server.EndpointStatus) string {
	if e.GaugeAgeS < 0 || e.GaugeAgeS > staleGauges {
		return "-\t-\t-"
	}
	return fmt.Sprintf("%d\t%d\t%.0f%%", e.Waiting, e.Running, 100*e.KVUse)
}

// forecast returns the predicted and the observed time of recent answers; "-" without any.
func forecast(e *server.EndpointStatus) string {
	if e.ObservedS == 0 {
		return "-\t-"
	}
	return fmt.Sprintf("%.3f s\t%.3f s", e.PredictedS, e.ObservedS)
}

// writeTroubles prints the problems of endpoints. Endpoints with the same problem share a line.
func writeTroubles(w io.Writer, eps []server.EndpointStatus) {
	at := map[string][]string{}
	var order []string
	say := func(e *server.EndpointStatus, what, why string) {
		line := "(" + what + "): " + why
		if at[line] == nil {
			order = append(order, line)
		}
		at[line] = append(at[line], e.Address)
	}
	for i := range eps {
		e := &eps[i]
		if e.Health.State == "unreached" {
			say(e, "unreached", "no replica has reached it yet")
		} else if e.Health.State != "healthy" {
			say(e, e.Health.State, untrusted(&e.Health))
		}
		if e.Health.FullS > 0 {
			say(e, "full", fmt.Sprintf("engine rejected a request for lack of capacity, avoided for another %.1f s", e.Health.FullS))
		}
		if len(e.Health.AvoidedModels) > 0 {
			say(e, "fails models", strings.Join(e.Health.AvoidedModels, ", ")+": avoided here, because their requests fail while other models are answered")
		}
		if n := e.Health.AvoidedOthers; n > 0 {
			say(e, "fails clients", fmt.Sprintf("%d clients or kinds of request are avoided here, because they fail while others are answered", n))
		}
		if e.Reason != "" {
			say(e, e.Knowledge, e.Reason)
		}
		if e.Source != "" && e.Knowledge != knowledge.CatchingUp.String() { // a transient state
			say(e, "predicted from", e.Source)
		}
		if e.GaugesError != "" {
			say(e, "no gauges", e.GaugesError)
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

// untrusted returns why and since when an endpoint is not trusted, and the remedy.
func untrusted(h *server.HealthStatus) string {
	line := h.Evidence + ", for " + time.Duration(h.SinceS*float64(time.Second)).Round(time.Second).String()
	if h.Overruled {
		line += "; ignored, because it applies to most of the pool"
	}
	if h.BackBy != "" {
		line += "; back by " + h.BackBy
	}
	return line
}
