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

// evidence collects evidence on the health of the endpoint that serves the request.
type evidence struct {
	watch      health.Watch
	ended      bool    // the evidence is final
	full       bool    // the endpoint had no capacity
	seen       bool    // its first token will be observed
	first      float64 // predicted seconds to the first token
	answer     float64 // predicted seconds to the end
	step       float64 // predicted seconds of a decode step
	prompt     uint64  // hash of the prompt, valid after the body is dropped
	client     uint64  // hash of the client's identity
	head       uint64  // hash of the prompt's beginning, if the answer's length will be compared
	progressAt time.Time
	failed     string        // the endpoint that failed before a fallback served, and how
	cause      health.Cause  // counted against the endpoint at the end; None, Void, Left: no evidence
	usage      request.Usage // reported at the end
}

// defaultAnswerTokens is the assumed answer length if there is no better estimate. overruns learns its
// error.
const defaultAnswerTokens = 200

// tokenGap is the maximum pause between two tokens of a stream, plus the time of other requests'
// prefills.
const tokenGap = 10 * time.Second

// visibleFrom is the score of endpoint.Unseen from which first tokens are known to be observed.
const visibleFrom = -8

// watchHealth starts watching the request at the serving endpoint.
func (f *flight) watchHealth(view *cycle.View) {
	v := &f.evidence
	v.seen = f.request.Stream && f.s.unseen.Score(f.WantBody) <= visibleFrom
	tokens := float64(defaultAnswerTokens)
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
	v.watch.Read = f.WantBody
	v.watch.Question = cycle.QuestionOf(f.request.Kind, f.request.Stream)
	f.ep.Tracker().Begin(&v.watch, f.queued.At, f.queued.At.Add(f.progressLimit()))
}

// overruns track, per model, how far answers exceed the prediction. A model that reasons for
// minutes must not affect others.
type overruns struct{ first, whole health.Overrun } // of observed first tokens, and of whole answers

// overrunSlots bounds the number of entries. Models with the same index share one.
const overrunSlots = 512

// overruns returns the entry of the request's model.
func (f *flight) overruns() *overruns {
	return &f.s.overruns[f.evidence.watch.Traits[health.TraitModel]%overrunSlots]
}

// progressLimit returns how long the request may take until its next progress.
func (f *flight) progressLimit() time.Duration {
	v := &f.evidence
	switch {
	case f.request.Kind == request.KindOther: // its work is unknown
		return health.Unbounded
	case v.seen:
		return f.overruns().first.Limit(v.first)
	default:
		return f.overruns().whole.Limit(v.answer)
	}
}

// judgeStatus handles the response status.
func (f *flight) judgeStatus(e *request.Event) {
	now := e.At
	switch {
	case e.Status == http.StatusServiceUnavailable && !e.Local && f.isIdle(now):
		f.endHealthWatch(now, health.Failed)
	case e.Status == http.StatusTooManyRequests, e.Status == http.StatusServiceUnavailable && !e.Local:
		f.evidence.full = true
		cause := health.Void
		if e.Status == http.StatusTooManyRequests && (f.isIdle(now) || f.ep.Tracker().Refuses(now)) { // it has no queue
			cause = f.causeOfDecline(e, now)
		}
		f.ep.Tracker().SetFull(now, min(max(e.RetryAfter, fullPeriod), time.Minute))
		f.endHealthWatch(now, cause)
	case e.Local && e.Status >= 500:
		f.endHealthWatch(now, health.Broken)
	case e.Status == http.StatusNotImplemented, e.Status == http.StatusHTTPVersionNotSupported:
		f.endHealthWatch(now, health.Void)
	case e.Status >= 500:
		f.endHealthWatch(now, health.Failed)
	case e.Status >= 300:
		f.endHealthWatch(now, f.causeOfDecline(e, now))
	case e.Status == http.StatusOK && !f.request.Stream && f.generates():
		f.evidence.watch.BodyBegun(f.evidence.client, now.Add(bodyTime))
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

// causeOfDecline returns the evidence of a 3xx or 4xx response. It is none if the proxy sent the
// response, or if other endpoints decline the client's requests too.
func (f *flight) causeOfDecline(e *request.Event, now time.Time) health.Cause {
	switch {
	case e.Local, !f.generates() && f.request.Kind != request.KindEmbeddings, f.ep.IsRemote():
		return health.Void
	case e.Status == http.StatusRequestTimeout, e.Status == statusClientClosed:
		return health.Void
	}
	return f.unlessClientFault(health.Declined, now)
}

// statusClientClosed is nginx's status for a client that disconnected.
const statusClientClosed = 499

// unlessClientFault returns the cause, or Void if several endpoints answered the client this way without a
// success since. Then the client is at fault.
func (f *flight) unlessClientFault(c health.Cause, now time.Time) health.Cause {
	if f.s.clients.Failed(f.clientOfModel(), int(f.ep.ID), now) {
		return health.Void
	}
	return c
}

// clientOfModel returns a hash of the client and the model.
func (f *flight) clientOfModel() uint64 {
	return f.evidence.client ^ bits.RotateLeft64(f.evidence.watch.Traits[health.TraitModel], 17)
}

// isIdle reports whether the endpoint is idle, by its metrics page and the load tracker. A rejection
// for lack of capacity is then a fault.
func (f *flight) isIdle(now time.Time) bool {
	const fresh, ours = 10 * time.Second, 2
	if f.ep.IsRemote() {
		return false
	}
	r := f.ep.Reading(now.UnixNano())
	return r.Sampled && r.Age < fresh && r.Waiting+r.Running == 0 && f.s.opts.Pool.LoadTracker().Load(f.ep, now).Requests <= ours
}

// fullPeriod is the minimum time to avoid an endpoint after a rejection for lack of capacity, even if
// its Retry-After is shorter. Queues usually drain sooner than announced.
const fullPeriod = time.Second

// observeProgress records received text. Lateness behind other requests or within an answer teaches nothing
// about a healthy engine. Lateness with no queue ahead shows a slow one.
func (f *flight) observeProgress(at time.Time) {
	v := &f.evidence
	if v.ended || at.Sub(v.progressAt) < 50*time.Millisecond {
		return
	}
	if v.watch.Late(at) {
		f.learn = learnable{prefill: f.learn.prefill && f.queued.Ahead.Waiting == 0, step: f.learn.step && f.firstAt.IsZero()}
	}
	v.progressAt = at
	v.watch.Moved(at, at.Add(tokenGap+f.overruns().whole.Limit(v.answer)))
}

// endHealthWatch finalizes the evidence, once. A failure that follows its prompt from endpoint to
// endpoint counts against the prompt.
func (f *flight) endHealthWatch(now time.Time, c health.Cause) {
	v := &f.evidence
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

// judgeOutcome handles the end of the request.
func (f *flight) judgeOutcome(o *request.Outcome) {
	v := &f.evidence
	if v.ended {
		return
	}
	v.usage = o.Usage
	late := v.watch.Late(o.At)
	switch {
	case o.Broken:
		f.learn = learnable{}
		f.endHealthWatch(o.At, health.Failed)
	case (o.Invalid || o.Endless && f.ep.Tracker().Finishes() || o.Foreign && f.ep.Listed(f.request.Target)) && !f.ep.IsRemote():
		f.learn = learnable{}
		f.endHealthWatch(o.At, f.unlessClientFault(health.Invalid, o.At))
	case f.isShort(o):
		f.endHealthWatch(o.At, f.unlessClientFault(health.Short, o.At))
	case o.Unclosed && f.ep.Tracker().Closes(): // a client cannot cause this
		f.learn = learnable{}
		f.endHealthWatch(o.At, health.Cut)
	case o.Unseen && f.request.Stream: // it may be truncated: do not clear its prompt or learn its time
		v.ended, v.cause = true, health.None
		v.watch.End(o.At, health.None)
	case o.Complete && o.Status != 0:
		f.overruns().whole.Observe(v.answer, o.At.Sub(f.queued.At))
		if late && f.queued.Ahead.Waiting > 0 {
			f.learn = learnable{}
		} else {
			f.learnWhole(o)
		}
		if o.Finished {
			f.ep.Tracker().SetFinishes()
		}
		if o.Closed {
			f.ep.Tracker().SetCloses()
		}
		f.endHealthWatch(o.At, health.None)
	case !o.Evicted && (o.Status != 0 || f.isOverdue(o.At)) && f.ep.Tracker().Cut(v.client, o.At):
		f.endHealthWatch(o.At, health.Cut)
	default: // the client or this server cancelled it
		f.endHealthWatch(o.At, health.Left)
	}
}

// isShort reports whether a sampled answer is much shorter than those of other endpoints to similar
// requests: of the same model, kind, tenant, limit and order of prompt size.
func (f *flight) isShort(o *request.Outcome) bool {
	v, tokens, unit := &f.evidence, f.tokens, uint64(0)
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

// isOverdue reports whether a request without an answer has waited longer than predicted.
func (f *flight) isOverdue(now time.Time) bool {
	predicted := f.evidence.answer
	if f.evidence.seen {
		predicted = f.evidence.first
	}
	return f.request.Kind != request.KindOther && now.Sub(f.queued.At) > seconds(predicted)
}

// failedOver records that the proxy moved to the next endpoint, and watches the request there.
func (f *flight) failedOver(to *endpoint.Endpoint, attempts int, now time.Time) {
	v := &f.evidence
	cause := health.Broken
	if attempts == 1 && !f.ep.IsRemote() { // not attempted: the proxy does not have the endpoint
		cause = health.Left
	}
	f.endHealthWatch(now, cause)
	f.s.retries.Add(now, 0, 1)
	v.failed = f.ep.Address + ": it could not be reached, refused the request, or broke off before its answer"
	if cause == health.Left {
		v.failed = f.ep.Address + ": the proxy does not know it"
	}
	v.ended, v.full, v.cause = false, false, health.None
	to.Tracker().Begin(&v.watch, now, now.Add(f.progressLimit()))
}

// learnWhole updates the cost model from an answer with a known total time whose first token was
// not observed. Without reported usage, the expected length counts.
func (f *flight) learnWhole(o *request.Outcome) {
	if f.tokens > 0 || o.Status >= 400 || f.split() || f.request.Stream && !f.firstAt.IsZero() || !f.learn.prefill || !f.learn.step {
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
	switch u := &f.evidence.usage; {
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
	return max(tokens-1, 0) * f.evidence.step
}
