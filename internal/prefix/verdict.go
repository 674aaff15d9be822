package prefix

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Verdict is the audit result for one model at one endpoint.
type Verdict struct {
	Model   string    `json:"model,omitempty"`   // "": not configured
	Prompts string    `json:"prompts,omitempty"` // kind of prompts; "": all
	State   string    `json:"state"`             // a knowledge.State
	Right   uint64    `json:"right"`             // within a block of the report
	Over    uint64    `json:"over"`              // the engine had less
	Under   uint64    `json:"under"`             // the engine had more
	Skipped uint64    `json:"skipped,omitempty"`
	Uses    string    `json:"uses"`             // data used by decisions: events, or sent
	Reason  string    `json:"reason,omitempty"` // why predictions are wrong
	Do      string    `json:"do,omitempty"`     // remedy
	Note    string    `json:"note,omitempty"`   // information that is not a problem
	Since   time.Time `json:"since,omitzero"`

	state knowledge.State
}

// Data used by decisions.
const (
	usesEvents = "events"
	usesSent   = "sent" // prompts sent to the endpoint
)

// Reasons reported from the first such event on.
const (
	notFollowed = "some cache groups of its model are of a kind or block size that is not followed"
	unsalted    = "its engine's events name no cache salts (vLLM before 0.18), and salted prompts were sent there: which of its blocks a prompt finds is not known"
	ungrouped   = "its engine's events name no cache groups (vLLM before 0.20), and its model has several: blocks of windows or states cannot be told from others"
	narrow      = "its model has windows or states alone: it reuses prompts whose beginning is evicted, and these are not predicted"
)

// StreamInfo is the state of an endpoint's stream other than its knowledge.State.
type StreamInfo struct {
	Blocks      int  // of its cache
	HasMessages bool // a message has arrived
	Sparse      bool // some cache groups are not supported
	Narrow      bool // no group has full attention
	// TopicMismatch is set if the publisher uses only a topic other than the subscribed one.
	TopicMismatch *events.TopicMismatch
	// Reports is the number of requested full reports received.
	Reports uint64
}

// lacking describes uncertain data of the endpoint's events, "" if there is none.
func (s *StreamInfo) lacking() string {
	switch {
	case s.Sparse:
		return notFollowed
	case s.Narrow:
		return narrow
	}
	return ""
}

// audits holds the records of one model.
type audits struct {
	model string

	mu      sync.Mutex
	records map[block.EndpointID]*record
	flags   atomic.Pointer[[]flags]           // by endpoint
	classes classes                           // of its requests
	shapes  [numShapes]atomic.Pointer[audits] // by prompt shape; nil if none occurred, and within shapes
}

func newAudits(model string) *audits {
	a := &audits{model: model, records: map[block.EndpointID]*record{}}
	a.flags.Store(new([]flags))
	return a
}

// flags are the parts of a record that decisions use.
type flags uint8

const (
	flagGuess flags = 1 << iota // use sent prompts
	flagWatch                   // request the answer
	flagSure                    // enough comparisons
)

// of returns the flags of an endpoint. It takes no lock.
func (a *audits) of(id block.EndpointID) flags {
	if f := *a.flags.Load(); int(id) < len(f) {
		return f[id]
	}
	return flagWatch
}

// with calls f with the record of an endpoint, and publishes its flags.
func (a *audits) with(id block.EndpointID, f func(*record)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.records[id]
	if r == nil {
		r = &record{}
		a.records[id] = r
	}
	f(r)
	a.show(id, r)
}

// show publishes changed flags of a record. The caller holds mu.
func (a *audits) show(id block.EndpointID, r *record) {
	now := flags(0)
	if r.guessing() {
		now |= flagGuess
	}
	if r.watching() {
		now |= flagWatch
	}
	if r.n >= enough {
		now |= flagSure
	}
	if a.of(id) == now {
		return
	}
	next := slices.Clone(*a.flags.Load())
	for int(id) >= len(next) {
		next = append(next, flagWatch)
	}
	next[id] = now
	a.flags.Store(&next)
}

func (a *audits) forget(id block.EndpointID) {
	for s := range a.shapes {
		if b := a.shapes[s].Load(); b != nil {
			b.forget(id)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.records[id] != nil {
		delete(a.records, id)
		a.show(id, &record{})
	}
}

// auditsOf returns the records of a request's model.
func (m *Matcher) auditsOf(r *request.Request) *audits {
	name := ""
	if m.o.Models != nil {
		if p := m.o.Models.Model(r.Target); p != nil {
			name = p.Name()
		}
	}
	if a, ok := m.audits.Load(name); ok {
		return a.(*audits)
	}
	a, _ := m.audits.LoadOrStore(name, newAudits(name))
	return a.(*audits)
}

// Verdicts returns the verdicts on an endpoint's predictions, by model.
func (m *Matcher) Verdicts(ep *endpoint.Endpoint) (out []Verdict) {
	m.audits.Range(func(_, of any) bool {
		a := of.(*audits)
		a.mu.Lock()
		defer a.mu.Unlock()
		r := a.records[ep.ID]
		if r == nil {
			if m.unlikeOf(a.model, ep.ID) == (unlike{}) {
				return true
			}
			r = &record{}
		}
		v := m.verdict(a.model, ep, r)
		if v.state != knowledge.Mismatched && !m.foretell(&v, r, m.unlikeOf(a.model, ep.ID).chats) {
			out = append(out, m.foretold(a, ep)...)
		}
		apart := m.apart(a, ep, v.state == knowledge.Mismatched)
		if len(apart) > 0 && v.state == knowledge.Mismatched { // does not apply to all prompts
			v.state, v.Reason, v.Do = m.o.Read(ep.ID), "", ""
			v.State = v.state.String()
		}
		if v.state != knowledge.Mismatched {
			apart = append(apart, m.classVerdicts(a, ep, apart)...)
		}
		out = append(append(out, v), apart...)
		return true
	})
	slices.SortStableFunc(out, func(a, b Verdict) int { return cmp.Compare(a.Model, b.Model) })
	return out
}

// State returns how reliable an endpoint's data is, given the state of its stream. A followed
// stream with wrong predictions is not exact. reason is "" if the stream's state applies unchanged.
func (m *Matcher) State(ep *endpoint.Endpoint, read knowledge.State) (state knowledge.State, reason string) {
	state = read
	seen := m.o.StreamInfo(ep)
	if a := seen.TopicMismatch; a != nil {
		if read >= knowledge.CatchingUp {
			state = knowledge.Mismatched
		}
		return state, joined(astray(a))
	}
	if !read.Followed() {
		if u := m.reuses.of(ep.ID); u != nil {
			reason, do := u.words()
			return state, joined(reason, do)
		}
		return state, ""
	}
	if m.o.Profiles.salted(ep.ID) {
		return knowledge.Approximate, unsalted
	}
	if m.ungrouped(ep) {
		return knowledge.Approximate, ungrouped
	}
	for _, v := range m.Verdicts(ep) {
		if v.Reason == "" || reason != "" && v.state >= state {
			continue
		}
		if v.state <= state {
			state, reason = v.state, joined(v.Reason, v.Do)
		}
	}
	if lacking := seen.lacking(); reason == "" && lacking != "" {
		return knowledge.Approximate, lacking
	}
	return state, reason
}

// joined combines a reason and its remedy.
func joined(reason, do string) string {
	if do == "" {
		return reason
	}
	return reason + ": " + do
}

// verdict converts a record to a Verdict.
func (m *Matcher) verdict(model string, ep *endpoint.Endpoint, r *record) Verdict {
	v := Verdict{
		Model: model, Right: r.total[right], Over: r.total[over], Under: r.total[under], Skipped: r.skipped, Uses: usesEvents,
		Since: r.since, state: m.o.Read(ep.ID),
	}
	if r.guessing() || !m.IndexAccepted(ep.ID) {
		v.Uses = usesSent
	}
	seen := m.o.StreamInfo(ep)
	lacking := seen.lacking()
	if lacking != "" {
		v.Note = lacking + ": little is certain of it by its events"
	}
	switch {
	case !v.state.Followed():
	case r.requests >= enough && r.plain >= doubt:
		v.state, v.Uses = knowledge.Approximate, usesSent
		v.Reason, v.Do = m.unrendered(model)
	case v.state == knowledge.Partial:
		v.Reason, v.Do = m.joinedLate(r, seen.Reports)
	case r.wrong == under:
		v.state = knowledge.Mismatched
		v.Reason, v.Do = m.missing(model, ep, r)
	case r.wrong == over:
		v.state = knowledge.Mismatched
		v.Reason = "it reuses less than its events say"
		if v.Do = "see whether another server publishes on its event port, or takes its requests"; lacking != "" {
			v.Do = lacking + ": nothing is wrong with the engine"
		}
	case lacking != "":
		v.state = knowledge.Approximate
		v.Reason, v.Do = lacking, "nothing: Grapevine uses the requests sent to it where they predict better"
	case r.blind == memory && r.n < enough:
		v.Reason = "its answers do not come with a count of tokens, so that nothing shows whether its prompts match"
		v.Do = "have clients that stream ask for it (stream_options.include_usage), and let answers be looked at (--sample-bodies, the proxy's response bodies)"
	case r.mute >= enough && r.told == 0:
		v.Reason = "its answers do not say how many tokens were cached, so that nothing shows whether its prompts match"
		v.Do = "start it with --enable-prompt-tokens-details (vLLM) or --enable-cache-report (SGLang), and see that it caches prefixes at all"
	case r.dropsBlock():
		v.Note = "it leaves out the last block of what it holds, as engines that speculate do (EAGLE, MTP)"
	}
	v.State = v.state.String()
	return v
}

// joinedLate describes the missing data of an endpoint whose stream was joined late, and how it
// recovers.
func (m *Matcher) joinedLate(r *record, come uint64) (reason, do string) {
	const late = "its events are known from the middle of its life on"
	switch {
	case r.wrong == nothing && r.n >= enough && r.under <= relief/4:
		reason = late + fmt.Sprintf("; of the last %d predictions %.0f%% were right", r.n, 100*(1-r.under-r.over))
	case r.reports.deaf(come):
		return late + fmt.Sprintf(", it reuses more than that, and none of %d requests made it tell what", r.reports.asked),
			"nothing: it is known once its cache has turned over (engines before vLLM 0.32 do not tell; a larger buffer_steps in --kv-events-config keeps more for newcomers)"
	case r.wrong == under:
		reason = late + ", and it reuses more than that"
	default:
		reason = late
	}
	if m.o.FullReport {
		return reason, fmt.Sprintf("nothing: single requests have it tell what it reuses (%d asked, %d told)", r.reports.asked, come)
	}
	return reason, "allow single requests to have it tell what it reuses (--full-report)"
}

// unrendered describes why prompts of a model are not matched in their own space.
func (m *Matcher) unrendered(model string) (reason, do string) {
	if model == "" {
		return "its model is not configured, so its cache is estimated from the requests sent to it", "name the model's folder with --model"
	}
	return fmt.Sprintf("prompts of %s cannot be rendered, so the engine's cache is estimated from the requests sent to it", model), "see models in the status for the reasons"
}

// astray describes the topic of a publisher that differs from the subscribed one.
func astray(a *events.TopicMismatch) (reason, do string) {
	if a.Topic == "" {
		return "its publisher sends events without a topic, and those of a topic are read", "name no topic for its events"
	}
	return fmt.Sprintf("its publisher sends events under the topic %q alone, and another one is read", a.Topic),
		"name that topic for its events, or none, for all that it sends"
}

// missing describes why an engine may hold more of prompts than its events show.
func (m *Matcher) missing(model string, ep *endpoint.Endpoint, r *record) (reason, do string) {
	seen := m.o.StreamInfo(ep)
	named := model
	if m.o.Models != nil {
		named = m.o.Models.EventModel(ep).Name
	}
	switch {
	case named != model:
		return fmt.Sprintf("its events are read as those of model %q, and requests ask for %q", named, model),
			"set the endpoint's model, or add the name as an alias of the model"
	case seen.TopicMismatch != nil:
		return astray(seen.TopicMismatch)
	case seen.Blocks == 0 && !seen.HasMessages:
		return "no event has come, while its answers report cached tokens", "compare topic and port with the engine's --kv-events-config"
	case seen.lacking() != "":
		return seen.lacking(), "nothing: its cache is estimated from the requests sent to it"
	case seen.Blocks == 0:
		return "its events name no block that a prompt could begin with, while its answers report cached tokens",
			"compare the topic with the engine's"
	case m.unlikeOf(model, ep.ID).chats != "":
		return m.unlikeOf(model, ep.ID).chats, doUnlike
	case r.head < usualBlockTokens:
		return "its prompts begin otherwise than they are rendered here",
			"compare the chat template, its arguments and the model's folder with those of the engine (--chat-template, --default-chat-template-kwargs)"
	}
	return fmt.Sprintf("its prompts agree with those rendered here for about %.0f tokens, and differ then", r.head),
		"compare what the template prints there: the date (time zone of the engine), tools, images, or answers in the history"
}
