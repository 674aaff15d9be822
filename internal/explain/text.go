package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/explanation"
)

// Decision is one decision with additional information.
type Decision struct {
	explanation.Explanation
	// Knowledge is how well each endpoint's cache is known; see knowledge.State.
	Knowledge map[string]string `json:"knowledge"`
	// AgeMS is how outdated that may be.
	AgeMS map[string]float64 `json:"age_ms"`
	Notes []string           `json:"notes,omitempty"`
	// Decided is the choice of the stored decision that this one repeats under another configuration.
	Decided string `json:"decided,omitempty"`
}

// WriteText prints one decision.
func WriteText(w io.Writer, e *Decision) error {
	writeDecision(w, e)
	for _, n := range e.Notes {
		wrapped(w, "note", n)
	}
	if len(e.Candidates) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\ncandidates")
	if err := writeTable(w, candidateColumns(e)); err != nil {
		return err
	}
	if c := predictionColumns(e); c != nil {
		fmt.Fprintln(w, "\npredicted, in milliseconds")
		if err := writeTable(w, c); err != nil {
			return err
		}
	}
	for i := range e.Profiles {
		fmt.Fprintf(w, "\nprofile %s\n", e.Profiles[i].Profile)
		if err := writeTable(w, profileColumns(&e.Profiles[i])); err != nil {
			return err
		}
	}
	if e.Omitted > 0 {
		fmt.Fprintf(w, "\n%d further candidates were not kept\n", e.Omitted)
	}
	return nil
}

func writeDecision(w io.Writer, e *Decision) {
	id := e.RequestID
	if id == "" {
		id = "without an id"
	}
	wrapped(w, "request", fmt.Sprintf("%s at %s", id, e.At.Format("2006-01-02 15:04:05.000")))
	if e.Decision != "" {
		wrapped(w, "decision", fmt.Sprintf("%s of %s", e.Decision, e.Replica))
	}
	model := e.Model
	if e.Target != "" && e.Target != e.Model {
		model += " as " + e.Target
	}
	wrapped(w, "prompt", strings.TrimSpace(fmt.Sprintf("%s · %s · priority %d%s", model, e.length(), e.Priority, matchedAs(e))))
	switch {
	case e.Refused != "":
		wrapped(w, "refused", e.Refused)
	case e.Queue != nil:
		wrapped(w, "waits", e.Queue.Reason)
	default:
		choice := e.named(e.Choice)
		if len(e.Fallbacks) > 0 {
			choice += " · then " + strings.Join(e.Fallbacks, ", ")
		}
		wrapped(w, "choice", choice)
	}
	if e.RunnerUp != "" {
		wrapped(w, "runner-up", fmt.Sprintf("%s · margin %.4g", e.named(e.RunnerUp), e.Margin))
	}
	if p := e.Predicted; e.Refused == "" && p.TTFT > 0 {
		fetch := ""
		if p.Fetch > 0 {
			fetch = fmt.Sprintf(" + fetching %.1f", p.Fetch)
		}
		zone := ""
		if p.Zone > 0 {
			zone = fmt.Sprintf(" · crosses zones at a price of %.1f ms", p.Zone)
		}
		wrapped(w, "predicted", fmt.Sprintf("first token after %.1f ms = wait %.1f%s + own prefill %.1f + fixed %.1f · costs others %.1f ms%s",
			p.TTFT, p.Wait, fetch, p.Own, p.Base, p.Others, zone))
	}
	for _, s := range e.Stages {
		text := stageText(e, s)
		if s.Revision != "" {
			text += " · within revision " + s.Revision
		}
		wrapped(w, s.Stage, text)
	}
	if u := e.WarmUp; u != nil {
		wrapped(w, "warm-up", fmt.Sprintf("of %s · %d prompt tokens were not cached there", e.named(u.Endpoint), u.Missing))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		wrapped(w, "header", name+": "+e.Headers[name])
	}
	if e.Queue != nil {
		wrapped(w, "queue", queueText(e.Queue))
	}
	for i := range e.Health {
		wrapped(w, "health", healthText(&e.Health[i]))
	}
	writeAvoided(w, e)
	if o := e.Outcome; o != nil {
		if o.Failed != "" {
			wrapped(w, "moved", "away from "+o.Failed)
		}
		wrapped(w, "outcome", outcome(o))
	}
}

// queueText describes a wait or its end.
func queueText(q *explanation.Queue) string {
	s := fmt.Sprintf("flow %q · waited %.0f ms", q.Flow, q.Waited)
	if q.Reason == "" {
		return s + " · " + q.Outcome
	}
	if q.Expected > 0 {
		s += fmt.Sprintf(" of about %.0f", q.Expected)
	}
	return s + fmt.Sprintf(" · %d of its flow ahead at this replica · its flow holds %.1f permits of its share of %.1f, with %d requests waiting · %d of %d permits are held",
		q.Ahead, q.FlowInFlight, q.FlowShare, q.FlowWaiting, q.InFlight, q.Permits)
}

// healthText describes an endpoint that was not healthy.
func healthText(h *explanation.Health) string {
	s := fmt.Sprintf("%s was %s for %.1f s: %s", h.Endpoint, h.State, h.Since, h.Evidence)
	if h.BackBy != "" {
		s += " · back by " + h.BackBy
	}
	if h.Used {
		return s + " · still a candidate"
	}
	return s + " · excluded"
}

// avoidedWords are the texts for the reasons of excluded endpoints.
var avoidedWords = [...]struct{ why, words string }{
	{explanation.AvoidedFull, "its engine rejected a request for lack of capacity"},
	{explanation.AvoidedModelFails, "it fails requests for this model but answers others"},
	{explanation.AvoidedClientFails, "it fails requests of this client but answers others"},
	{explanation.AvoidedKindFails, "it fails requests of this kind and size but answers others"},
	{explanation.AvoidedPlaces, "it has its maximum number of requests"},
	{explanation.AvoidedPrompt, "the prompt failed at several engines, and a crash there would lose more work"},
	{explanation.AvoidedConversation, "another engine stores the conversation"},
	{explanation.AvoidedSubset, "the proxy does not allow it"},
	{explanation.AvoidedRole, "it does not generate responses by itself"},
	{explanation.AvoidedModel, "it does not serve the model"},
}

// mostAvoided is how many endpoints are listed per reason.
const mostAvoided = 6

// writeAvoided lists the endpoints that were not candidates, with reasons. Unhealthy endpoints are
// covered by the health lines.
func writeAvoided(w io.Writer, e *Decision) {
	for _, reason := range avoidedWords {
		var names []string
		n := 0
		for _, a := range e.Avoided {
			if a.Reason != reason.why {
				continue
			}
			if n++; n > mostAvoided {
				continue
			}
			name := a.Endpoint
			if a.More > 0 {
				name += fmt.Sprintf(" (for %.1f s more)", a.More)
			}
			names = append(names, name)
		}
		if n > mostAvoided {
			names = append(names, fmt.Sprintf("%d more", n-mostAvoided))
		}
		if n > 0 {
			wrapped(w, "avoided", strings.Join(names, ", ")+": "+reason.words)
		}
	}
}

// stageText describes the decision about a stage.
func stageText(e *Decision, s explanation.Stage) string {
	if s.Stage == "fetch" {
		from := "a store"
		if s.Endpoint != "" {
			from = e.named(s.Endpoint)
		}
		return fmt.Sprintf("from %s · %d prompt tokens are not cached at the chosen endpoint", from, s.Missing)
	}
	switch s.Endpoint {
	case "":
		return fmt.Sprintf("at the chosen endpoint: %s · %d prompt tokens are not cached there", s.Outcome, s.Missing)
	case e.Choice:
		return fmt.Sprintf("at the chosen endpoint, which is also best for this stage · %d prompt tokens are not cached there", s.Missing)
	default:
		return fmt.Sprintf("at %s · %d prompt tokens are not cached at the chosen endpoint", e.named(s.Endpoint), s.Missing)
	}
}

// length describes the prompt's length. It is an estimate and may be below the cached tokens.
func (e *Decision) length() string {
	s, most := fmt.Sprintf("%d tokens", e.InputTokens), 0
	for i := range e.Candidates {
		most = max(most, e.heldBy(e.Candidates[i].Endpoint))
	}
	if most > e.InputTokens {
		s += fmt.Sprintf(" estimated, %d held", most)
	}
	return s
}

func matchedAs(e *Decision) string {
	switch e.Prompt.Space {
	case "text":
		return fmt.Sprintf(" · matched as text (%d bytes)", e.Prompt.Bytes)
	case "chunks":
		return fmt.Sprintf(" · matched approximately (%d bytes)", e.Prompt.Bytes)
	case "none":
		if e.InputTokens > 0 {
			return " · prompt too short to match approximately"
		}
		return " · no prompt to match"
	}
	return ""
}

func outcome(o *explanation.Outcome) string {
	s := fmt.Sprintf("status %d from %s", o.Status, o.Served)
	if o.TTFT > 0 {
		s += fmt.Sprintf(" · first token after %.1f ms", o.TTFT)
	}
	s += fmt.Sprintf(" · ended after %.1f ms", o.Took)
	if o.Against != "" {
		s += " · counts against the endpoint as " + o.Against
	}
	if o.PromptTokens > 0 {
		s += fmt.Sprintf(" · engine counted %d prompt tokens, %d of them cached, and %d generated", o.PromptTokens, o.CachedTokens, o.OutputTokens)
	}
	return s
}

// named returns an address with the endpoint's name.
func (e *Decision) named(address string) string {
	for i := range e.Candidates {
		if c := &e.Candidates[i]; c.Endpoint == address && c.Name != "" && c.Name != address {
			return fmt.Sprintf("%s (%s)", address, cut(c.Name, 40))
		}
	}
	return address
}

// WriteList prints one line per decision.
func WriteList(w io.Writer, list []Decision) error {
	id, at, tokens, held := column{head: "REQUEST", left: true}, column{head: "AT", left: true}, column{head: "TOKENS"}, column{head: "HELD"}
	choice, margin := column{head: "CHOICE", left: true}, column{head: "MARGIN"}
	first, seen, status := column{head: "PREDICTED MS"}, column{head: "SEEN MS"}, column{head: "STATUS"}
	for i := range list {
		e := &list[i]
		id.add("%s", cut(e.RequestID, 36))
		at.add("%s", e.At.Format("15:04:05"))
		tokens.add("%d", e.InputTokens)
		held.add("%d", e.heldBy(e.Choice))
		choice.add("%s", e.Choice)
		margin.add("%.3g", e.Margin)
		first.add("%.0f", e.Predicted.TTFT)
		o := e.Outcome
		switch {
		case o == nil:
			seen.add("-")
			status.add("open")
			continue
		case o.TTFT > 0:
			seen.add("%.0f", o.TTFT)
		default:
			seen.add("-")
		}
		status.add("%d", o.Status)
	}
	return writeTable(w, []column{id, at, tokens, held, choice, margin, first, seen, status})
}

// heldBy returns the prompt tokens cached at a candidate.
func (e *Decision) heldBy(address string) (n int) {
	for i := range e.Candidates {
		if e.Candidates[i].Endpoint != address {
			continue
		}
		for _, tokens := range e.Candidates[i].Matched {
			n += tokens
		}
	}
	return n
}
