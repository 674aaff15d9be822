package statustext

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/server"
)

// staleGauges is the age in seconds from which an engine's gauges are no longer shown.
const staleGauges = 5

// Unknown stands for a value that is not known.
const Unknown = "-"

// Clock describes by how much the clock of a member is ahead of the replica's; negative: behind.
func Clock(m *server.MemberStatus) string {
	if m.ClockAheadS == nil {
		return Unknown
	}
	if d := *m.ClockAheadS; d <= -0.05 || d >= 0.05 {
		return fmt.Sprintf("%+.1f s", d)
	}
	return "0 s"
}

// Health describes the health of an endpoint.
func Health(e *server.EndpointStatus) string {
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

// Knowledge describes the state of knowledge about an endpoint, with its age.
func Knowledge(e *server.EndpointStatus) string {
	if e.AgeMS == 0 {
		return e.Knowledge
	}
	return fmt.Sprintf("%s, up to %.1f s behind", e.Knowledge, e.AgeMS/1000)
}

// Lag returns the lag of an endpoint's events and the number of blocks from these; Unknown without
// events.
func Lag(e *server.EndpointStatus) (lag, blocks string) {
	if len(e.Streams) == 0 && e.Blocks == 0 {
		return Unknown, Unknown
	}
	return fmt.Sprintf("%.1f ms", e.LagMS), fmt.Sprint(e.Blocks)
}

// HasGauges reports whether the gauges of an endpoint's engine are known and recent.
func HasGauges(e *server.EndpointStatus) bool { return e.GaugeAgeS >= 0 && e.GaugeAgeS <= staleGauges }

// Gauges returns the gauges of an endpoint's engine, or Unknown.
func Gauges(e *server.EndpointStatus) (waiting, running, kvUse string) {
	if !HasGauges(e) {
		return Unknown, Unknown, Unknown
	}
	return fmt.Sprint(e.Waiting), fmt.Sprint(e.Running), fmt.Sprintf("%.0f%%", 100*e.KVUse)
}

// Forecast returns the predicted and the observed time of recent answers, or Unknown.
func Forecast(e *server.EndpointStatus) (predicted, observed string) {
	if e.ObservedS == 0 {
		return Unknown, Unknown
	}
	return fmt.Sprintf("%.3f s", e.PredictedS), fmt.Sprintf("%.3f s", e.ObservedS)
}

// Hits returns the share of prompt tokens that engines found in cache, or Unknown.
func Hits(cached, prompt uint64) string {
	if prompt == 0 {
		return Unknown
	}
	return fmt.Sprintf("%.0f%%", 100*float64(cached)/float64(prompt))
}

// Problems describes what is wrong with an endpoint, one line each.
func Problems(e *server.EndpointStatus) (lines []string) {
	say := func(what, why string) { lines = append(lines, "("+what+"): "+why) }
	if e.Health.State == "unreached" {
		say("unreached", "no replica has reached it yet")
	} else if e.Health.State != "healthy" {
		say(e.Health.State, untrusted(&e.Health))
	}
	if e.Health.FullS > 0 {
		say("full", fmt.Sprintf("engine rejected a request for lack of capacity, avoided for another %.1f s", e.Health.FullS))
	}
	if len(e.Health.AvoidedModels) > 0 {
		say("fails models", strings.Join(e.Health.AvoidedModels, ", ")+": avoided here, because their requests fail while other models are answered")
	}
	if n := e.Health.AvoidedOthers; n > 0 {
		say("fails clients", fmt.Sprintf("%d clients or kinds of request are avoided here, because they fail while others are answered", n))
	}
	if e.Reason != "" {
		say(e.Knowledge, e.Reason)
	}
	if e.Source != "" && e.Knowledge != knowledge.CatchingUp.String() { // a transient state
		say("predicted from", e.Source)
	}
	if e.GaugesError != "" {
		say("no gauges", e.GaugesError)
	}
	return lines
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

// CompareProblems orders endpoints by the urgency of their problems, then by address.
func CompareProblems(a, b *server.EndpointStatus) int {
	switch {
	case len(a.Problems) == 0 && len(b.Problems) == 0:
		return cmp.Compare(a.Address, b.Address)
	case len(a.Problems) == 0:
		return 1
	case len(b.Problems) == 0:
		return -1
	}
	return cmp.Or(slices.CompareFunc(a.Problems, b.Problems, problems.Compare), cmp.Compare(a.Address, b.Address))
}

// State describes the state of a replica, with the reason.
func State(st *server.Status) string {
	if st.Reason == "" {
		return st.State
	}
	return st.State + " (" + st.Reason + ")"
}

// Problem names a problem with its first subjects, in one line.
func Problem(f *problems.Found) string {
	line := fmt.Sprintf("%s %s: %s", f.Code, f.Severity, f.Title)
	if text := f.Summary(); text != "" {
		line += ": " + text
	}
	return line
}
