package picker

import (
	"math/bits"
	"net/http"
	"time"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// vitals collects evidence on the health of the endpoint that serves the request.
type vitals struct {
	watch  health.Watch
	ended  bool    // the evidence is final
	full   bool    // the endpoint had no capacity
	seen   bool    // its first token will be observed
	first  float64 // predicted seconds to the first token
	answer float64 // predicted seconds to the end
	step   float64 // predicted seconds of a decode step
	prompt uint64  // hash of the prompt, valid after the body is dropped
	client uint64  // hash of the client's identity
	head   uint64  // hash of the prompt's beginning, if the answer's length will be compared
	told   time.Time
	failed string        // the endpoint that failed before a fallback served, and how
	cause  health.Cause  // counted against the endpoint at the end; None, Void, Left: no evidence
	usage  request.Usage // reported at the end
}

// answerTokens is the assumed answer length if there is no better estimate. patience learns its
// error.
const answerTokens = 200

// tokenGap is the maximum pause between two tokens of a stream, plus the time of other requests'
// prefills.
const tokenGap = 10 * time.Second

// visibleFrom is the score of endpoint.Unseen from which first tokens are known to be observed.
const visibleFrom = -8

// beginVitals starts watching the request at the serving endpoint.
func (f *flight) beginVitals(view *cycle.View) {
	v := &f.vitals
	v.seen = f.request.Stream && f.s.unseen.Score(f.WantBody) <= visibleFrom
	tokens := float64(answerTokens)
	if n := f.request.MaxTokens; n > 0 {
		tokens = min(tokens, float64(n))
	}
	v.prompt = f.request.PromptKey()
	v.client = f.request.ClientKey(v.prompt)
	if f.WantBody && f.generates() {
		v.head = f.request.HeadKey()
	}
	v.first = f.predicted.TTFT()
	v.step = view.Cost.StepOf(float64(view.Load.Requests+1), float64(view.Load.Context))
	v.answer = v.first + tokens*v.step
	v.watch.Traits = cycle.TraitsOf(f.request)
	f.ep.Tracker().Begin(&v.watch, f.queued.At, f.queued.At.Add(f.patient()))
}

// patience tracks, per model, how far answers exceed the prediction. A model that reasons for
// minutes must not affect others.
type patience struct{ first, whole health.Overrun } // of observed first tokens, and of whole answers

// patiences bounds the number of entries. Models with the same index share one.
const patiences = 512

// patience returns the entry of the request's model.
func (f *flight) patience() *patience {
	return &f.s.patience[f.vitals.watch.Traits[health.TraitModel]%patiences]
}

// patient returns how long the request may take until its next progress.
func (f *flight) patient() time.Duration {
	v := &f.vitals
	switch {
	case f.request.Kind == request.KindOther: // its work is unknown
		return health.Unbounded
	case v.seen:
		return f.patience().first.Limit(v.first)
	default:
		return f.patience().whole.Limit(v.answer)
	}
}

// answered handles the response status.
func (f *flight) answered(e *request.Event) {
	now := e.At
	switch {
	case e.Status == http.StatusServiceUnavailable && !e.Local && f.idles(now):
		f.endVitals(now, health.Failed)
	case e.Status == http.StatusTooManyRequests, e.Status == http.StatusServiceUnavailable && !e.Local:
		f.vitals.full = true
		f.ep.Tracker().SetFull(now, min(max(e.RetryAfter, fullFor), time.Minute))
		f.endVitals(now, health.Void)
	case e.Local && e.Status >= 500:
		f.endVitals(now, health.Broken)
	case e.Status == http.StatusNotImplemented, e.Status == http.StatusHTTPVersionNotSupported:
		f.endVitals(now, health.Void)
	case e.Status >= 500:
		f.endVitals(now, health.Failed)
	case e.Status >= 300:
		f.endVitals(now, f.declined(e, now))
	case e.Status == http.StatusOK && !f.request.Stream && f.generates():
		f.vitals.watch.BodyBegun(f.vitals.client, now.Add(bodyTime))
	}
}

// bodyTime is the maximum delay between the header and the body of a non-streamed response. Engines
// send both at once.
const bodyTime = time.Second

// generates reports whether the request asks for generated text.
func (f *flight) generates() bool {
	switch f.request.Kind {
	case request.KindChat, request.KindCompletions, request.KindResponses, request.KindMessages:
		return true
	}
	return false
}

// declined returns the evidence of a 3xx or 4xx response. It is none if the proxy sent the
// response, or if other endpoints decline the client's requests too.
func (f *flight) declined(e *request.Event, now time.Time) health.Cause {
	switch {
	case e.Local, !f.generates(), f.ep.IsRemote():
		return health.Void
	case e.Status == http.StatusRequestTimeout, e.Status == statusClientClosed:
		return health.Void
	}
	return f.differs(health.Declined, now)
}

// statusClientClosed is nginx's status for a client that disconnected.
const statusClientClosed = 499

// differs returns the cause, or Void if several endpoints answered the client this way without a
// success since. Then the client is at fault.
func (f *flight) differs(c health.Cause, now time.Time) health.Cause {
	if f.s.clients.Failed(f.clientOfModel(), int(f.ep.ID), now) {
		return health.Void
	}
	return c
}

// clientOfModel returns a hash of the client and the model.
func (f *flight) clientOfModel() uint64 {
	return f.vitals.client ^ bits.RotateLeft64(f.vitals.watch.Traits[health.TraitModel], 17)
}

// idles reports whether the endpoint is idle, by its metrics page and the load tracker. A rejection
// for lack of capacity is then a fault.
func (f *flight) idles(now time.Time) bool {
	const fresh, ours = 10 * time.Second, 2
	if f.ep.IsRemote() {
		return false
	}
	r := f.ep.Reading(now.UnixNano())
	return r.Sampled && r.Age < fresh && r.Waiting+r.Running == 0 && f.s.opts.Pool.LoadTracker().Load(f.ep, now).Requests <= ours
}

// fullFor is the minimum time to avoid an endpoint after a rejection for lack of capacity, even if
// its Retry-After is shorter. Queues usually drain sooner than announced.
const fullFor = time.Second

// moves records received text. Lateness behind other requests or within an answer teaches nothing
// about a healthy engine. Lateness with no queue ahead shows a slow one.
func (f *flight) moves(at time.Time) {
	v := &f.vitals
	if v.ended || at.Sub(v.told) < 50*time.Millisecond {
		return
	}
	if v.watch.Late(at) {
		f.learns = lessons{prefill: f.learns.prefill && f.queued.Ahead.Waiting == 0, step: f.learns.step && f.firstAt.IsZero()}
	}
	v.told = at
	v.watch.Moved(at, at.Add(tokenGap+f.patience().whole.Limit(v.answer)))
}

// endVitals finalizes the evidence, once. A failure that follows its prompt from endpoint to
// endpoint counts against the prompt.
func (f *flight) endVitals(now time.Time, c health.Cause) {
	v := &f.vitals
	if v.ended {
		return
	}
	v.ended = true
	switch c {
	case health.Failed, health.Broken, health.Cut:
		id := int(f.ep.ID)
		if f.ep.IsRemote() {
			id = ^id // ids of remote endpoints are a separate range
		}
		if f.s.prompts.Failed(v.prompt, id, now) {
			if c == health.Failed {
				c = health.Void
			} else {
				c = health.Left
			}
		}
	case health.None:
		f.s.prompts.Succeeded(v.prompt, now)
		f.s.clients.Succeeded(f.clientOfModel(), now)
	}
	v.cause = c
	v.watch.End(now, c)
	if f.ep.IsRemote() {
		f.endedRemote(now, c, v.full, c == health.None)
	}
}

// concludeVitals handles the end of the request.
func (f *flight) concludeVitals(o *request.Outcome) {
	v := &f.vitals
	if v.ended {
		return
	}
	v.usage = o.Usage
	late := v.watch.Late(o.At)
	switch {
	case o.Broken:
		f.learns = lessons{}
		f.endVitals(o.At, health.Failed)
	case (o.Invalid || o.Endless && f.ep.Tracker().Finishes() || o.Foreign && f.ep.Listed(f.request.Target)) && !f.ep.IsRemote():
		f.learns = lessons{}
		f.endVitals(o.At, f.differs(health.Invalid, o.At))
	case f.short(o):
		f.endVitals(o.At, f.differs(health.Short, o.At))
	case o.Unclosed && f.ep.Tracker().Closes(): // a client cannot cause this
		f.learns = lessons{}
		f.endVitals(o.At, health.Cut)
	case o.Unseen && f.request.Stream: // it may be truncated: do not clear its prompt or learn its time
		v.ended, v.cause = true, health.None
		v.watch.End(o.At, health.None)
	case o.Complete && o.Status != 0:
		f.patience().whole.Observe(v.answer, o.At.Sub(f.queued.At))
		if late && f.queued.Ahead.Waiting > 0 {
			f.learns = lessons{}
		} else {
			f.learnWhole(o)
		}
		if o.Finished {
			f.ep.Tracker().SetFinishes()
		}
		if o.Closed {
			f.ep.Tracker().SetCloses()
		}
		f.endVitals(o.At, health.None)
	case !o.Evicted && (o.Status != 0 || f.waits(o.At)) && f.ep.Tracker().Cut(v.client, o.At):
		f.endVitals(o.At, health.Cut)
	default: // the client or this server cancelled it
		f.endVitals(o.At, health.Left)
	}
}

// short reports whether a sampled answer is much shorter than those of other endpoints to similar
// requests: of the same model, kind, tenant, limit and order of prompt size.
func (f *flight) short(o *request.Outcome) bool {
	v, tokens, unit := &f.vitals, f.tokens, uint64(0)
	if o.Usage.Seen {
		tokens, unit = o.Usage.OutputTokens, 1
	}
	if v.head == 0 || !o.Complete || o.Status != http.StatusOK || o.Unseen || o.Unclosed || f.ep.IsRemote() || tokens <= 0 {
		return false
	}
	t := &v.watch.Traits
	class := t[health.TraitClass] ^ bits.RotateLeft64(t[health.TraitClient], 7) ^ (uint64(bits.Len(uint(max(f.request.MaxTokens, 0))))<<1|unit)*0xff51afd7ed558ccd
	return f.s.lengths.Short(class, v.head, int(f.ep.ID), tokens)
}

// waits reports whether a request without an answer has waited longer than predicted.
func (f *flight) waits(now time.Time) bool {
	predicted := f.vitals.answer
	if f.vitals.seen {
		predicted = f.vitals.first
	}
	return f.request.Kind != request.KindOther && now.Sub(f.queued.At) > seconds(predicted)
}

// failedOver records that the proxy moved to the next endpoint, and watches the request there.
func (f *flight) failedOver(to *endpoint.Endpoint, attempts int, now time.Time) {
	v := &f.vitals
	cause := health.Broken
	if attempts == 1 && !f.ep.IsRemote() { // not attempted: the proxy does not have the endpoint
		cause = health.Left
	}
	f.endVitals(now, cause)
	f.s.again.Add(now, 0, 1)
	v.failed = f.ep.Address + ": it could not be reached, refused the request, or broke off before its answer"
	if cause == health.Left {
		v.failed = f.ep.Address + ": the proxy does not know it"
	}
	v.ended, v.full, v.cause = false, false, health.None
	to.Tracker().Begin(&v.watch, now, now.Add(f.patient()))
}

// learnWhole updates the cost model from an answer with a known total time whose first token was
// not observed. Without reported usage, the expected length counts.
func (f *flight) learnWhole(o *request.Outcome) {
	if f.tokens > 0 || o.Status >= 400 || f.split() || f.request.Stream && !f.firstAt.IsZero() || !f.learns.prefill || !f.learns.step {
		return
	}
	a := f.wholeAnswer(o)
	f.ep.ObserveForecast(f.predicted.TTFT()+f.predictedDecode(), a.Took.Seconds())
	if !f.learnNeeds(a.Took.Seconds() - f.predicted.TTFT() - f.predictedDecode()) {
		f.s.opts.Pool.LearnWhole(f.ep, a)
	}
}

// wholeAnswer returns the answer's duration and length.
func (f *flight) wholeAnswer(o *request.Outcome) *endpoint.WholeAnswer {
	l := f.s.opts.Pool.LoadTracker().RankLoad(f.ep, o.At)
	a := endpoint.WholeAnswer{
		Queued: &f.queued, Took: o.At.Sub(f.queued.At),
		Sequences: float64(max(l.Requests-l.Waiting, 1)), Context: float64(l.Context + int64(f.queued.Own.Input)),
	}
	a.Tokens, a.Reported = f.generated()
	return &a
}

// generated returns the number of generated tokens, as reported or expected.
func (f *flight) generated() (tokens float64, reported bool) {
	switch u := &f.vitals.usage; {
	case f.request.Kind == request.KindEmbeddings:
		return 0, true
	case u.Seen:
		return float64(max(u.OutputTokens, 0)), true
	}
	return f.s.opts.Pool.Answers().Expect(f.request.Target, f.request.MaxTokens), false
}

// predictedDecode returns the seconds of decoding that were predicted for the answer's length.
func (f *flight) predictedDecode() float64 {
	tokens, _ := f.generated()
	return max(tokens-1, 0) * f.vitals.step
}
