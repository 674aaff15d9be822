package sidecar

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/continuation"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/sse"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// With Options.Continue, a stream whose engine dies continues at another decode engine that the
// picker named (package continuation). The rules of suspect.go apply to deaths after the first content
// too, except that nothing waits for a restart:
//
//  1. A vLLM engine that vanished without an error was not ended by a prompt. Its streams continue at
//     once.
//  2. If an engine reports an error in a stream, it is observed. If it lives, the stream continues. If
//     it died, all requests that it held then are suspects, and their streams are not continued.
//  3. A stream is continued at most once. The second engine gets no names of further engines.

// errConnector means that Options.Continue is not supported by the connector's engines.
var errConnector = errors.New("sidecar: streams of SGLang and TensorRT-LLM cannot be continued: they do not report token ids")

var errNoContinuation = errors.New("sidecar: the answer cannot be continued")

// continuing is the state of streams that may be continued. nil if that is off.
type continuing struct {
	open      *deaths // all requests at the decode engine, until their end
	continued prometheus.Counter
	refused   *prometheus.CounterVec // streams that were not continued, by reason
}

func newContinuing(r prometheus.Registerer, open *deaths) *continuing {
	name := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "grapevine", Subsystem: "sidecar", Name: name, Help: help}
	}
	c := &continuing{
		open:      open,
		continued: prometheus.NewCounter(name("continued_total", "Streams that another engine completed after their engine had died.")),
		refused:   prometheus.NewCounterVec(name("not_continued_total", "Streams that ended early because their engine died, by the reason why no other engine completed them."), []string{"reason"}),
	}
	for _, reason := range continuation.Reasons() {
		c.refused.WithLabelValues(string(reason))
	}
	r.MustRegister(c.continued, c.refused)
	return c
}

// track prepares the request's stream for a continuation.
func (x *exchange) track() {
	if x.s.continuing == nil {
		return
	}
	stream, ok := continuation.New(x.api, x.body)
	if !ok {
		return
	}
	x.stream, x.others = stream, targets(x.r.Header, request.HeaderContinuation)
	if len(x.others) == 0 || x.s.o.Targets == nil {
		return
	}
	allowed := x.s.o.Targets.Continuation(x.r.Header, x.others)
	if len(allowed) < len(x.others) {
		x.s.m.denied.Inc()
	}
	x.others = allowed
}

// tracked reports whether the stream's tokens are recorded.
func (x *exchange) tracked() bool {
	return x.stream != nil && x.stream.Reason() == "" && len(x.others) > 0
}

// enter records a leg to the decode engine until leave.
func (x *exchange) enter() {
	if c := x.s.continuing; c != nil && !x.inside {
		x.inside = true
		c.open.enter(x.s.engine.Host, x.promptKey)
	}
}

// leave removes the leg. If the engine may have died, it returns the death.
func (x *exchange) leave(failed, confessed bool) *death {
	c := x.s.continuing
	if c == nil || !x.inside {
		return nil
	}
	x.inside = false
	return c.open.leave(x.s.engine.Host, x.promptKey, time.Now(), failed, confessed)
}

// passTracked forwards the rest of a stream. The next n bytes are events; if err is not nil, the last one
// may be incomplete. ended means that the end of the connection need not be an error.
func (x *exchange) passTracked(resp *http.Response, d *leg, e *sse.Events, n int, err error, ended bool) *fault {
	stream := x.stream
	for {
		part := e.Take(n)
		for len(part) > 0 {
			size := sse.First(part)
			if size == 0 && err != nil {
				break
			}
			if size == 0 {
				size = len(part) // a part of an event that is too large
			}
			event := part[:size]
			part = part[size:]
			ended = ended || kvtransfer.Ends(event)
			if continuation.Failed(event) {
				if f := x.resume(resp, d, true); f == nil || !f.before {
					return f
				}
			}
			if out := stream.Observe(event); len(out) > 0 {
				if err := x.write(out, d); err != nil {
					return &fault{err: err}
				}
			}
		}
		if err != nil {
			return x.endTracked(resp, d, stream, part, err, ended)
		}
		if !e.More() {
			x.flush()
		}
		var event []byte
		event, err = e.Next(0)
		n = len(event)
	}
}

// endTracked handles the end of the connection, before which the engine sent part of an event.
func (x *exchange) endTracked(resp *http.Response, d *leg, stream *continuation.Stream, part []byte, err error, ended bool) *fault {
	complete := stream.Complete() || kvtransfer.Ends(part)
	if !complete {
		if f := x.resume(resp, d, false); f == nil || !f.before {
			return f
		}
	}
	_, failed := x.w.Write(part)
	switch {
	case !errors.Is(err, io.EOF):
	case failed != nil:
		err = failed
	case complete && (ended || kvtransfer.Ends(part)):
		err = nil
	default:
		err = errBroken
	}
	return x.ended(resp, err)
}

// resume continues the stream at another engine. It returns nil if the client has the whole answer, a
// fault with before set if the client has got nothing of the second answer, and another fault if that
// broke off too. confessed means that the engine reported an error. A second call continues nothing.
func (x *exchange) resume(resp *http.Response, d *leg, confessed bool) *fault {
	of := x.leave(true, confessed)
	if x.stream == nil {
		return &fault{err: errNoContinuation, before: true}
	}
	reason := x.continueAt(d, of, confessed)
	switch {
	case reason == "":
		x.stream = nil
		x.s.continuing.continued.Inc()
		return x.ended(resp, nil)
	case x.r.Context().Err() != nil:
		return &fault{err: x.r.Context().Err()}
	}
	x.notContinued(reason)
	return &fault{err: errNoContinuation, before: reason != continuation.Broken}
}

// notContinued counts a stream that breaks off at the client, once.
func (x *exchange) notContinued(reason continuation.Reason) {
	if x.stream == nil || x.r.Context().Err() != nil {
		return
	}
	if reason == "" {
		switch reason = x.stream.Reason(); {
		case reason == "" && len(x.others) == 0:
			reason = continuation.Endpoint
		case reason == "":
			reason = continuation.Finished
		}
	}
	x.stream = nil
	x.s.continuing.refused.WithLabelValues(string(reason)).Inc()
}

// continueAt continues the stream at the first of the named engines that accepts it.
func (x *exchange) continueAt(d *leg, of *death, confessed bool) continuation.Reason {
	_, body, reason := x.stream.Resume()
	if reason != "" {
		return reason
	}
	survived := false
	if confessed {
		_, survived = x.s.deaths.died(x.r.Context(), x.s.engine)
	}
	if of != nil && x.s.o.Connector.accused(of, confessed, survived) {
		return continuation.Suspect
	}
	for _, target := range x.others {
		base := &url.URL{Scheme: "http", Host: target}
		if x.s.o.ContinueTLS {
			base.Scheme = "https"
		}
		rest, _, _ := x.stream.Resume()
		again, reason := x.continuePart(d, base, rest, body)
		if !again {
			return reason
		}
	}
	return continuation.Refused
}

// continuePart continues the stream at one engine. again means that the engine did not begin to compute
// the request.
func (x *exchange) continuePart(d *leg, base *url.URL, rest *continuation.Rest, body kvtransfer.Pieces) (again bool, reason continuation.Reason) {
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	limit := time.AfterFunc(x.s.o.Prefill, cancel) // until the first content
	defer limit.Stop()
	span := x.beginLeg(tracing.SpanDecode, base.Host)
	defer func() {
		if reason != "" {
			span.Sampled().Fail(string(reason), "")
		}
		span.End()
	}()
	var wire wire
	r := x.request(wire.watch(ctx), base, body)
	x.continueTrace(r.Header, span)
	resp, err := x.s.o.Transport.RoundTrip(r)
	if err != nil {
		return !wire.sent.Load(), continuation.Refused
	}
	defer resp.Body.Close()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusTooManyRequests:
		spend(resp)
		return true, continuation.Refused
	case resp.StatusCode != http.StatusOK, kind != "text/event-stream", len(codings(resp.Header)) > 0:
		return false, continuation.Refused
	}
	return false, x.passRest(d, &sse.Events{R: resp.Body, Buf: make([]byte, 0, 8<<10)}, rest, limit)
}

// passRest forwards the second answer.
func (x *exchange) passRest(d *leg, e *sse.Events, rest *continuation.Rest, limit *time.Timer) continuation.Reason {
	begun := false
	broken := func(reason continuation.Reason) continuation.Reason {
		if begun {
			return continuation.Broken
		}
		return reason
	}
	for {
		event, err := e.Next(0)
		if err != nil {
			return broken(continuation.Refused)
		}
		event = e.Take(len(event))
		out, reason := rest.Event(event)
		if reason != "" {
			return broken(reason)
		}
		if len(out) > 0 {
			if !begun {
				begun = true
				limit.Stop()
			}
			if x.write(out, d) != nil {
				return continuation.Broken
			}
		}
		if rest.Finished() && kvtransfer.Ends(event) {
			return ""
		}
		if !e.More() {
			x.flush()
		}
	}
}
