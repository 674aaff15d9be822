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

// Verdict is what comparisons with engines' reports say of the predictions for one
// model at one endpoint.
type Verdict struct {
	Model   string    `json:"model,omitempty"`   // "": one that is not configured
	Prompts string    `json:"prompts,omitempty"` // of what sort; "": all
	State   string    `json:"state"`             // a knowledge.State
	Right   uint64    `json:"right"`             // within a block of what was reported
	Over    uint64    `json:"over"`              // the engine had less
	Under   uint64    `json:"under"`             // it had more
	Skipped uint64    `json:"skipped,omitempty"`
	Uses    string    `json:"uses"`             // what decisions go by: events, or sent
	Reason  string    `json:"reason,omitempty"` // why predictions are wrong
	Do      string    `json:"do,omitempty"`     // what to do about it
	Note    string    `json:"note,omitempty"`   // what is as it should be, and good to know
	Since   time.Time `json:"since,omitzero"`

	state knowledge.State
}

// What decisions go by.
const (
	usesEvents = "events"
	usesSent   = "sent" // what was sent there
)

// What is said of an endpoint from the first such event on.
const (
	notFollowed = "some cache groups of its model are of a kind or block size that is not followed"
	unsalted    = "its engine's events name no cache salts (vLLM before 0.18), and salted prompts were sent there: which of its blocks a prompt finds is not known"
	ungrouped   = "its engine's events name no cache groups (vLLM before 0.20), and its model has several: blocks of windows or states cannot be told from others"
	narrow      = "its model has windows or states alone: it reuses prompts whose beginning is evicted, and these are not predicted"
)

// StreamInfo is what is known of an endpoint's stream besides its state.
type StreamInfo struct {
	Blocks      int  // of its cache
	HasMessages bool // some message has come
	Sparse      bool // some cache groups are of kinds that are not followed
	Narrow      bool // none has full attention
	// TopicMismatch says that its publisher sends under another topic alone than the one that is
	// read; nil: it was not seen to.
	TopicMismatch *events.TopicMismatch
	// Reports is how many full reports have come that were asked for.
	Reports uint64
}

// lacking says what is not certain of the endpoint by its events, "" if all is.
func (s *StreamInfo) lacking() string {
	switch {
	case s.Sparse:
		return notFollowed
	case s.Narrow:
		return narrow
	}
	return ""
}

// audits keep the records of one model.
type audits struct {
	model string

	mu      sync.Mutex
	records map[block.EndpointID]*record
	flags   atomic.Pointer[[]flags]           // by endpoint
	classes classes                           // of its requests
	shapes  [numShapes]atomic.Pointer[audits] // of prompts; nil where none came, and in those themselves
}

func newAudits(model string) *audits {
	a := &audits{model: model, records: map[block.EndpointID]*record{}}
	a.flags.Store(new([]flags))
	return a
}

// flags are what a decision needs of a record.
type flags uint8

const (
	flagGuess flags = 1 << iota // go by what was sent there
	flagWatch                   // ask for the answer
	flagSure                    // enough was compared
)

// of returns the flags of an endpoint. It takes no lock.
func (a *audits) of(id block.EndpointID) flags {
	if f := *a.flags.Load(); int(id) < len(f) {
		return f[id]
	}
	return flagWatch
}

// with calls f with the record of an endpoint, and makes its flags visible.
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

// show publishes the flags of a record that have changed; mu is held.
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

// auditsOf returns the records of the model that a request asks for.
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

// Verdicts returns what is concluded of the predictions for an endpoint, by model.
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
		if len(apart) > 0 && v.state == knowledge.Mismatched { // not of all prompts
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

// State is how far what is known of an endpoint can be trusted, where its stream
// alone says read: what is followed and does not match is not exact. reason is "" where
// the stream's state stands.
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

// joined is a reason and what to do about it in one sentence.
func joined(reason, do string) string {
	if do == "" {
		return reason
	}
	return reason + ": " + do
}

// verdict puts a record into words.
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
		v.Reason, v.Do = lacking, "nothing: it is known by what was sent there where that comes nearer"
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

// joinedLate says what is missing of an endpoint whose stream was joined in the middle,
// and how that heals.
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

// unrendered says why prompts of a model are not matched in their own space.
func (m *Matcher) unrendered(model string) (reason, do string) {
	if model == "" {
		return "its prompts are matched by what was sent there, since their model is not configured", "name the model's folder with --model"
	}
	return fmt.Sprintf("prompts of %s are matched by what was sent there, since they cannot be rendered", model), "see models in the status for the reasons"
}

// astray says under which topic a publisher sends, where that is not the one that is read.
func astray(a *events.TopicMismatch) (reason, do string) {
	if a.Topic == "" {
		return "its publisher sends events without a topic, and those of a topic are read", "name no topic for its events"
	}
	return fmt.Sprintf("its publisher sends events under the topic %q alone, and another one is read", a.Topic),
		"name that topic for its events, or none, for all that it sends"
}

// missing says why an engine may hold more of prompts than its events tell.
func (m *Matcher) missing(model string, ep *endpoint.Endpoint, r *record) (reason, do string) {
	seen := m.o.StreamInfo(ep)
	named := model
	if m.o.Models != nil {
		named = m.o.Models.EventModel(ep.Models).Name
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
		return seen.lacking(), "nothing: it is known by what was sent there"
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
