package extproc

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/coding"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// bodyExtent is how much of the body is available at placement.
type bodyExtent uint8

const (
	bodyAbsent bodyExtent = iota // none, or too late
	bodyPrefix                   // its beginning
	bodyWhole
)

// placeHead replies to the request headers with the destination.
func (st *stream) placeHead(extent bodyExtent) error {
	if err := st.place(extent); err != nil {
		return err
	}
	answer := st.kit.route.Finish(wire.ReplyRequestHeaders, nil)
	if o := st.modes.headOverride(); o != nil {
		answer = append(answer, o.override...)
	}
	return st.send(&wire.Outbound{Whole: answer})
}

// place parses the request, calls the chooser, and prepares the reply: the route, and the body if
// the decision changes it.
func (st *stream) place(extent bodyExtent) error {
	st.in.settled = true
	st.guard.Settle()
	st.in.memory.Keep()
	r := st.request
	body := st.in.body.data
	if len(body) == 0 {
		extent = bodyAbsent
	} else {
		r.Body = body
		var err error
		if extent, err = st.decode(extent); err != nil {
			return st.refuse(asRefusal(err))
		}
	}
	if err := st.parse(extent); err != nil {
		return st.refuse(asRefusal(err))
	}
	strip := st.trust()
	if r.HasSubset && len(r.Subset) == 0 {
		return st.refuse(request.Errorf(request.ReasonNoEndpoints, "the proxy allows no endpoint for this request"))
	}
	if err := st.choose(); err != nil {
		return err
	}
	d := st.decision
	st.sent = d.Endpoints[:min(st.destinations(), len(d.Endpoints))]
	destination := st.sent[0]
	if len(st.sent) > 1 {
		destination = strings.Join(st.sent, ",")
	}
	view := r.Headers.(headerView)
	removed := foreign(strip, view, forwards(d))
	room := view.room(len(removed))
	if !st.kit.route.Begin(d, destination, &room) {
		st.p.metrics.crowded.Inc()
	}
	if retries(st.ctx) {
		st.kit.route.Tries(d.Tries, &room)
		st.kit.route.RetryRefusal(d.RetryRefusal, &room)
	}
	st.kit.route.Trace(st.trace.Headers(), &room)
	for _, name := range removed {
		st.kit.route.RemoveHeader(name)
	}
	if (d.ModelTarget != "" || d.BodyExtra != "" || d.Prioritised) && len(body) > 0 {
		st.in.renamed = splice(r, d)
	}
	if st.in.decoded && st.in.renamed != nil {
		st.kit.route.RemoveHeader(coding.HeaderStandard)
		st.kit.route.RemoveHeader(coding.HeaderSGLang)
	}
	if st.restores() {
		// The model name is not replaced in compressed responses.
		st.kit.route.RemoveHeader(wire.HeaderAcceptEncoding)
	}
	return nil
}

// destinations returns the number of addresses to send to the proxy.
func (st *stream) destinations() int {
	if n := st.p.opts.Destinations; n > 0 {
		return n
	}
	return announced(st.ctx)
}

// parse reads the request and looks for KV transfer fields. Large bodies wait for CPU first.
func (st *stream) parse(extent bodyExtent) error {
	span := st.trace.Sampled().Start(tracing.SpanParse)
	defer span.End()
	span.SetInt(tracing.Bytes, len(st.request.Body))
	end, ok := st.p.opts.Budget.AcquireCPU(st.ctx, len(st.request.Body))
	if !ok {
		return request.Errorf(request.ReasonCancelled, "the client disconnected")
	}
	defer end()
	st.request.Copyable = extent == bodyWhole && !st.modes.observe
	for {
		if err := st.parseBody(extent); err != nil {
			return err
		}
		changed, err := st.withoutKVTransfer(extent)
		if err != nil || !changed {
			return err
		}
	}
}

// parseBody parses the request as far as its body is available.
func (st *stream) parseBody(extent bodyExtent) error {
	if extent == bodyWhole {
		return st.p.opts.Parse(st.request)
	}
	if st.p.opts.ParsePrefix != nil {
		st.p.opts.ParsePrefix(st.request)
	}
	return nil
}

// choose calls the chooser and stores the decision.
func (st *stream) choose() error {
	start := st.p.opts.Now()
	st.boundWait()
	st.allowEviction()
	span := st.trace.Sampled().Start(tracing.SpanDecision)
	st.request.Trace = span
	d, err := st.p.opts.Chooser.Choose(st.ctx, st.request)
	st.request.Trace = nil
	st.endDecision(span, d, err)
	st.p.metrics.choose.Observe(st.p.opts.Now().Sub(start).Seconds())
	if err != nil {
		return st.refuse(asRefusal(err))
	}
	st.decision = d
	if len(d.Endpoints) == 0 {
		st.release(false, false)
		return st.refuse(request.Errorf(request.ReasonNoEndpoints, "no endpoint is ready"))
	}
	st.p.metrics.requests.WithLabelValues(resultPlaced).Inc()
	return nil
}

// answerFor responds to the request in place of the engine, with a JSON document.
func (st *stream) answerFor(status int, body []byte) error {
	st.in.settled = true
	st.p.metrics.requests.WithLabelValues(resultAnswered).Inc()
	st.trace.Sampled().SetInt(tracing.Status, status)
	if err := st.send(document(status, body)); err != nil {
		return err
	}
	return errAnswered
}

// refuse rejects the request.
func (st *stream) refuse(e *request.Error) error {
	st.in.settled = true
	if st.ctx.Err() != nil {
		e = request.Errorf(request.ReasonCancelled, "the client disconnected")
	}
	st.p.metrics.requests.WithLabelValues(e.Reason.String()).Inc()
	st.traceRefusal(e)
	st.p.opts.Log.Debug("request refused", "request_id", budget.PrintableName(st.request.ID), "reason", e.Reason.String())
	if e.Reason == request.ReasonShuttingDown && st.request.Moves {
		return status.Error(codes.Unavailable, e.Message) // the proxy asks another replica
	}
	if err := st.send(immediate(e)); err != nil {
		return err
	}
	return errAnswered
}
