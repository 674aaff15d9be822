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
	unsalted    = "its engine's events carry no cache salts (vLLM before 0.18), and it received salted prompts, so its blocks cannot be matched to prompts"
	ungrouped   = "its engine's events carry no cache groups (vLLM before 0.20), and its model has several, so sliding-window and state blocks look like all others"
	narrow      = "its model has only sliding-window or state layers: it reuses prompts whose beginning was evicted, and such reuse is not predicted"
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
		if v.state != knowledge.Mismatched && !m.predictVerdict(&v, r, m.unlikeOf(a.model, ep.ID).chats) {
			out = append(out, m.predictedVerdicts(a, ep)...)
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
		return state, joined(topicMismatch(a))
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
		v.Note = lacking + ", so its events describe only part of its cache"
	}
	switch {
	case !v.state.Followed():
	case r.requests >= enough && r.plain >= wrongShare:
		v.state, v.Uses = knowledge.Approximate, usesSent
		v.Reason, v.Do = m.unrendered(model)
	case v.state == knowledge.Partial:
		v.Reason, v.Do = m.joinedLate(r, seen.Reports)
	case r.wrong == under:
		v.state = knowledge.Mismatched
		v.Reason, v.Do = m.missing(model, ep, r)
	case r.wrong == over:
		v.state = knowledge.Mismatched
		v.Reason = "it reuses fewer tokens than its events announce"
		if v.Do = "check that no other server publishes on its event port or receives its requests"; lacking != "" {
			v.Do = lacking + ": the engine works correctly"
		}
	case lacking != "":
		v.state = knowledge.Approximate
		v.Reason, v.Do = lacking, "no action needed: Grapevine uses the requests sent to it where they predict better"
	case r.blind == memory && r.n < enough:
		v.Reason = "its answers carry no token usage, so predictions cannot be verified"
		v.Do = "let streaming clients request usage (stream_options.include_usage), and let Grapevine read response bodies (--sample-bodies and the proxy's response body mode)"
	case r.mute >= enough && r.reporting == 0:
		v.Reason = "its answers do not report cached tokens, so predictions cannot be verified"
		v.Do = "start it with --enable-prompt-tokens-details (vLLM) or --enable-cache-report (SGLang), and check that prefix caching is enabled"
	case r.dropsBlock():
		v.Note = "it does not reuse the last cached block, as with speculative decoding (EAGLE, MTP)"
	}
	v.State = v.state.String()
	return v
}

// joinedLate describes the missing data of an endpoint whose stream was joined late, and how it
// recovers.
func (m *Matcher) joinedLate(r *record, come uint64) (reason, do string) {
	const late = "its event stream was joined after its engine had started"
	switch {
	case r.wrong == nothing && r.n >= enough && r.under <= rightShare/4:
		reason = late + fmt.Sprintf("; the last %d predictions were %.0f%% right", r.n, 100*(1-r.under-r.over))
	case r.reports.deaf(come):
		return late + fmt.Sprintf(", it reuses more than was announced since, and none of %d requests produced a full report", r.reports.asked),
			"no action needed: the index is complete once the cache has turned over (vLLM before 0.32 sends no full report; a larger buffer_steps in --kv-events-config keeps more events for late readers)"
	case r.wrong == under:
		reason = late + ", and it reuses more than was announced since"
	default:
		reason = late
	}
	if m.o.FullReport {
		return reason, fmt.Sprintf("no action needed: Grapevine requests full reports of reused blocks (%d requested, %d received)", r.reports.asked, come)
	}
	return reason, "enable full reports of reused blocks (--full-report)"
}

// unrendered describes why prompts of a model are not matched in their own space.
func (m *Matcher) unrendered(model string) (reason, do string) {
	if model == "" {
		return "its model is not configured, so its cache is estimated from the requests sent to it", "name the model's folder with --model"
	}
	return fmt.Sprintf("prompts of %s cannot be rendered, so the engine's cache is estimated from the requests sent to it", model), "see the models in grapevine status for the reasons"
}

// astray describes the topic of a publisher that differs from the subscribed one.
func topicMismatch(a *events.TopicMismatch) (reason, do string) {
	if a.Topic == "" {
		return "its publisher sends events without a topic, but a topic is configured here", "remove the topic from the endpoint's event settings"
	}
	return fmt.Sprintf("its publisher uses only the topic %q, but another topic is configured here", a.Topic),
		"configure that topic, or remove the topic to receive all events"
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
		return topicMismatch(seen.TopicMismatch)
	case seen.Blocks == 0 && !seen.HasMessages:
		return "no event has arrived, but its answers report cached tokens", "compare topic and port with the engine's --kv-events-config"
	case seen.lacking() != "":
		return seen.lacking(), "no action needed: its cache is estimated from the requests sent to it"
	case seen.Blocks == 0:
		return "its events announce no first block of a prompt, but its answers report cached tokens",
			"compare the configured topic with the engine's"
	case m.unlikeOf(model, ep.ID).chats != "":
		return m.unlikeOf(model, ep.ID).chats, doUnlike
	case r.head < usualBlockTokens:
		return "its prompts differ from Grapevine's rendering from the start",
			"compare the chat template, its arguments and the model's folder with those of the engine (--chat-template, --default-chat-template-kwargs)"
	}
	return fmt.Sprintf("its prompts match Grapevine's rendering for about %.0f tokens and then differ", r.head),
		"compare the part that the template prints there: date (time zone of the engine), tools, images, or earlier answers"
}
