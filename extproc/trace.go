package extproc

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/trace"
	grpcmeta "google.golang.org/grpc/metadata"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// callMetadata is the metadata of the proxy's call. A proxy that makes spans itself names there its
// span of this call, which is closer than the client's span in the request's headers.
type callMetadata struct{ ctx context.Context }

// Get implements tracing.Getter.
func (m callMetadata) Get(name string) string {
	if v := grpcmeta.ValueFromIncomingContext(m.ctx, name); len(v) > 0 {
		return v[0]
	}
	return ""
}

// beginTrace begins the request's span.
func (st *stream) beginTrace(view headerView) {
	t := st.p.opts.Tracer
	if t == nil {
		return
	}
	st.trace = t.Begin(tracing.SpanRequest, trace.SpanKindServer, callMetadata{st.ctx}, view)
	if s := st.trace.Sampled(); s != nil {
		s.Set(tracing.RequestID.String(budget.PrintableName(st.request.ID)), tracing.URLPath.String(budget.PrintableName(st.request.Path)))
	}
}

// operations are the conventional names of what requests ask for.
var operations = [...]string{
	request.KindCompletions: "text_completion", request.KindChat: "chat", request.KindResponses: "chat", request.KindMessages: "chat",
	request.KindEmbeddings: "embeddings", request.KindGenerate: "text_completion",
}

// endDecision ends the span of the decision, and describes the request, which has been parsed.
func (st *stream) endDecision(span *tracing.Span, d *request.Decision, err error) {
	if span == nil {
		return
	}
	r := st.request
	if err != nil {
		e := asRefusal(err)
		span.Fail(e.Reason.String(), e.Error())
	} else {
		span.Set(tracing.Decision.Int64(int64(d.Number)))
	}
	span.End()
	st.trace.Set(tracing.Stream.Bool(r.Stream), tracing.Priority.Int(r.Priority))
	if op := operations[r.Kind]; op != "" {
		st.trace.SetString(tracing.Operation, op)
	}
	if r.Model != "" {
		st.trace.SetString(tracing.Model, budget.PrintableName(r.Model))
	}
	if r.Target != r.Model {
		st.trace.SetString(tracing.Target, budget.PrintableName(r.Target))
	}
	if r.MaxTokens > 0 {
		st.trace.SetInt(tracing.MaxTokens, r.MaxTokens)
	}
}

// traceRefusal marks the span of a request that the picker answers with an error.
func (st *stream) traceRefusal(e *request.Error) {
	s := st.trace.Sampled()
	if s == nil {
		return
	}
	status := refusalOf(e.Reason).status
	s.SetInt(tracing.Status, status)
	if status >= http.StatusInternalServerError {
		s.Fail(e.Reason.String(), e.Error())
		return
	}
	s.SetString(tracing.ErrorType, e.Reason.String())
}

// traceFirstToken adds the time of the first token of a streamed answer.
func (st *stream) traceFirstToken() {
	if st.request != nil && st.request.Stream {
		st.trace.Sampled().Event(tracing.EventFirstToken)
	}
}

// endTrace ends the request's span.
func (st *stream) endTrace() {
	s := st.trace.Sampled()
	if s == nil {
		return
	}
	st.traceAnswer(s)
	s.End()
}

// traceAnswer adds what is known of the answer.
func (st *stream) traceAnswer(s *tracing.Span) {
	server := st.back.served
	if server == "" && len(st.sent) > 0 {
		server = st.sent[0]
	}
	if host, port, err := net.SplitHostPort(server); err == nil {
		n, _ := strconv.Atoi(port)
		s.Set(tracing.Server.String(host), tracing.ServerPort.Int(n))
	}
	if st.back.attempts > 0 {
		s.SetInt(tracing.Attempts, st.back.attempts)
	}
	if u := st.kit.scan.Usage(); u.Seen {
		s.Set(tracing.InputTokens.Int(u.PromptTokens), tracing.OutputTokens.Int(u.OutputTokens))
		if u.CachedSeen {
			s.SetInt(tracing.CachedTokens, u.CachedTokens)
		}
	}
	switch status := st.back.status; {
	case st.eviction.happened():
		s.Fail(request.ReasonEvicted.String(), "evicted in favour of other requests")
	case status >= http.StatusInternalServerError:
		s.SetInt(tracing.Status, status)
		s.Fail(strconv.Itoa(status), http.StatusText(status))
	case status > 0:
		s.SetInt(tracing.Status, status)
		if status >= http.StatusBadRequest {
			s.SetString(tracing.ErrorType, strconv.Itoa(status))
		} else if !st.back.ended && st.ctx.Err() != nil {
			s.SetString(tracing.ErrorType, request.ReasonCancelled.String())
		}
	case st.decision != nil && st.ctx.Err() != nil:
		s.SetString(tracing.ErrorType, request.ReasonCancelled.String())
	}
}
