package extproc

import (
	"context"
	"errors"
	"net/http"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/grapevine-epp/grapevine/extproc/answer"
	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// errAnswered ends a stream after an immediate response; nothing may follow it.
var errAnswered = errors.New("extproc: request was answered")

// stream is the state machine of one HTTP request. It does I/O only through link, and belongs to
// one goroutine.
type stream struct {
	p     *Processor
	ctx   context.Context
	link  transport
	kit   *kit
	began time.Time
	modes streamModes
	known bool // modes were read

	guard    *wire.Guard // nil if streams are not guarded
	request  *request.Request
	decision *request.Decision
	trace    *tracing.Span // of the request; nil without a tracer
	sent     []string      // destinations sent to the proxy, best first
	in       inState
	back     outState
	released bool // the decision's accounting has ended
	eviction eviction
}

// inState is the progress of the request.
type inState struct {
	headHeld bool // headers await a reply
	settled  bool // the request was placed
	ended    bool // body or trailers are complete
	chunks   int  // STREAMED body messages that await a reply
	body     heldBody
	memory   budget.Holder // of the body
	renamed  []byte        // the body as changed by the decision, nil if unchanged
	upload   bool          // an upload of unknown length
	decoded  bool          // the request was read from its decoded body
	bytes    int
}

// outState is the progress of the response.
type outState struct {
	headSeen bool
	faults   bool // it has a header meant for the picker only
	ended    bool
	status   int
	served   string
	bytes    int
	bare     bool // it has no body
	stored   bool // the stored response's id was reported
	local    bool // the proxy responded instead of the engine
	attempts int  // of the proxy, 0 if not reported
}

// kit is the pooled memory of a stream.
type kit struct {
	message wire.Inbound
	chunk   wire.Outbound
	route   wire.RouteWriter
	scan    answer.Scan
	rename  answer.Rename
	strip   []string // routing headers sent by the client

	owner  *stream // current stream
	evict  func()  // evicts the owner's request
	starve func()  // ends the owner's stream to free its body's memory
}

// reset clears the state of the previous request.
func (k *kit) reset() {
	k.message.Free()
	k.chunk = wire.Outbound{}
	k.scan.Reset()
	k.rename.Reset()
}

// handle handles one message, which the caller keeps. An error ends the stream.
func (st *stream) handle(m *wire.Inbound) error {
	if !st.known {
		st.known = true
		st.modes = modesOf(m, &st.p.opts, quiet(st.ctx))
		st.p.warnUnseen(&st.modes)
	}
	switch m.Part {
	case wire.FieldRequestHeaders:
		return st.requestHeaders(m)
	case wire.FieldRequestBody:
		return st.requestBody(m)
	case wire.FieldRequestTrailers:
		return st.requestTrailers()
	case wire.FieldResponseHeaders:
		return st.responseHeaders(m)
	case wire.FieldResponseBody:
		return st.responseBody(m)
	case wire.FieldResponseTrailers:
		return st.responseTrailers(m)
	default:
		// Messages without a part, such as flow control updates, get no reply.
		return nil
	}
}

// send sends a reply, except in observability mode.
func (st *stream) send(m *wire.Outbound) error {
	if st.modes.observe {
		return nil
	}
	return st.transmit(m)
}

// sendRoute replies with the destination, to the headers, the body (which body may replace) or the
// trailers.
func (st *stream) sendRoute(kind protowire.Number, body []byte) error {
	return st.send(&wire.Outbound{Whole: st.kit.route.Finish(kind, body)})
}

// sendChunks sends a body in full duplex; end marks its last chunk. An empty body is sent only for
// the end mark. The caller keeps its reference.
func (st *stream) sendChunks(reply protowire.Number, body mem.Buffer, end bool) error {
	if st.modes.observe {
		return nil
	}
	size := 0
	if body != nil {
		size = body.Len()
	}
	if size == 0 && !end {
		return nil
	}
	m := &st.kit.chunk
	for at := 0; ; at += wire.MaxChunk {
		to := min(at+wire.MaxChunk, size)
		*m = wire.Outbound{Reply: reply, End: end && to == size}
		if to > at {
			m.Body = body.Slice(at, to)
		}
		if err := st.transmit(m); err != nil {
			return err
		}
		if to == size {
			return nil
		}
	}
}

// passChunk returns a received chunk in full duplex, including an empty one, with which Envoy opens
// a WebSocket: Envoy 1.39 waits until it is returned.
func (st *stream) passChunk(reply protowire.Number, m *wire.Inbound) error {
	if len(m.Bytes()) > 0 || m.End {
		return st.sendChunks(reply, m.Body, m.End)
	}
	st.kit.chunk = wire.Outbound{Reply: reply}
	return st.send(&st.kit.chunk)
}

// release ends the decision's accounting. Only the first call has an effect.
func (st *stream) release(complete, unseen bool) {
	if st.released || st.decision == nil {
		return
	}
	st.released = true
	fault := st.fault(complete && !unseen)
	st.decision.Done(request.Outcome{
		At:       st.p.opts.Now(),
		Status:   st.back.status,
		Served:   st.back.served,
		Complete: complete,
		Unseen:   unseen,
		Attempts: st.back.attempts,
		Broken:   fault == answer.Broken,
		Invalid:  fault == answer.Empty,
		Foreign:  (fault == answer.Sound || fault == answer.Unfinished) && st.request != nil && st.kit.scan.OtherModel(st.request.Model, st.request.Target),
		Unclosed: fault == answer.Unclosed,
		Closed:   st.kit.scan.Closed(),
		Finished: st.kit.scan.Finished(),
		Endless:  fault == answer.Unfinished,
		Evicted:  st.eviction.happened(),
		Bytes:    st.back.bytes,
		Usage:    st.kit.scan.Usage(),

		ResponseID: st.kit.scan.ResponseID(),
	})
}

// fault returns the fault of a completely observed answer. A missing body is a fault unless the
// proxy does not send bodies.
func (st *stream) fault(whole bool) answer.Fault {
	seen := st.back.bytes > 0 || st.back.bare
	if !whole || !seen || st.back.status != http.StatusOK || st.request == nil || st.request.Model == "" {
		return answer.Sound
	}
	fault := st.kit.scan.Fault()
	switch st.request.Kind {
	case request.KindChat, request.KindCompletions:
		return fault
	case request.KindResponses, request.KindMessages: // these end their streams differently
		if fault != answer.Unclosed && fault != answer.Unfinished && fault != answer.Empty {
			return fault
		}
	}
	return answer.Sound
}

// close ends the stream's accounting after the last message.
func (st *stream) close() {
	// An end that the proxy does not send cannot be distinguished from an abort. Unseen reports
	// this.
	unseen := st.back.headSeen && !st.back.ended && !st.eviction.happened() && st.modes.Response == BodyNone && st.back.bytes == 0
	st.release(st.back.ended || unseen, unseen)
	st.endTrace()
	st.dropBody()
	m := st.p.metrics
	m.bytes.WithLabelValues(directionRequest).Add(float64(st.in.bytes))
	m.bytes.WithLabelValues(directionResponse).Add(float64(st.back.bytes))
}
