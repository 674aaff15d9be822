package extproc

import (
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
)

// BodyMode is how a proxy sends a body.
type BodyMode = filterv3.ProcessingMode_BodySendMode

// Body modes.
const (
	BodyNone            = filterv3.ProcessingMode_NONE
	BodyStreamed        = filterv3.ProcessingMode_STREAMED
	BodyBuffered        = filterv3.ProcessingMode_BUFFERED
	BodyBufferedPartial = filterv3.ProcessingMode_BUFFERED_PARTIAL
	BodyFullDuplex      = filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
)

// Modes are the body modes of both directions.
type Modes struct {
	Request, Response BodyMode
}

// streamModes are the rules that one stream goes by.
type streamModes struct {
	Modes
	early    bool // STREAMED bodies come before the headers are answered
	observe  bool // nothing may be answered
	override bool // mode_override is honoured
}

// modesOf reads the rules from the first message of a stream.
func modesOf(m *wire.Inbound, o *Options) streamModes {
	sm := streamModes{Modes: Modes{BodyFullDuplex, BodyFullDuplex}, observe: m.Observe}
	if o.Assume != nil {
		sm.Modes = *o.Assume
	}
	if c := &m.Config; c.Present {
		sm.Request, sm.Response, sm.early = known(c.Request, sm.Request), known(c.Response, sm.Response), c.Early
		// Envoy honours an override only under these conditions; elsewhere it
		// counts one as spurious.
		sm.override = o.AllowModeOverride && !sm.early && !sm.observe &&
			sm.Request != BodyFullDuplex && sm.Response != BodyFullDuplex
	}
	if sm.observe {
		// Nobody waits for an answer, so the request is placed by whatever has
		// come when its body ends, or when the response begins.
		sm.Modes = Modes{BodyStreamed, BodyNone}
	}
	return sm
}

// known returns a mode that there is: a proxy may name one that this program was not told of.
func known(m, otherwise BodyMode) BodyMode {
	if m < BodyNone || m > BodyFullDuplex {
		return otherwise
	}
	return m
}

// holdsHead tells whether the request headers stay unanswered until the body
// was seen.
func (m *streamModes) holdsHead() bool {
	return m.Request == BodyFullDuplex || m.Request == BodyStreamed && (m.early || m.observe)
}

// choosesAtHead tells whether the request must be placed by its headers,
// because no body comes, or comes too late to change where it goes.
func (m *streamModes) choosesAtHead() bool {
	return m.Request == BodyNone || m.Request == BodyStreamed && !m.early && !m.observe
}

// responseOverrides holds the prepared answers to response headers that switch
// the response body on or off, for each request body mode. Trailers are asked
// for in both: they keep the side stream open until the response ends, which
// is when the in-flight book lets go of the request.
var responseOverrides = func() (t [2][BodyBufferedPartial + 1]*wire.Outbound) {
	for want, body := range [2]BodyMode{BodyNone, BodyStreamed} {
		for req := range t[want] {
			t[want][req] = wire.Fixed(&extprocv3.ProcessingResponse{
				Response:     &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}},
				ModeOverride: requestMode(BodyMode(req), body),
			})
		}
	}
	return t
}()

// bufferRequestBody holds, for each response body mode, the answer to request
// headers that asks for the whole body, which is then placed by.
var bufferRequestBody = func() (t [BodyBufferedPartial + 1]*wire.Outbound) {
	for mode := range t {
		t[mode] = wire.Fixed(&extprocv3.ProcessingResponse{
			Response:     &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}},
			ModeOverride: requestMode(BodyBuffered, BodyMode(mode)),
		})
	}
	return t
}()

// requestMode is a mode override that goes with the answer to request headers.
func requestMode(request, response BodyMode) *filterv3.ProcessingMode {
	return &filterv3.ProcessingMode{
		RequestHeaderMode:   filterv3.ProcessingMode_SEND,
		ResponseHeaderMode:  filterv3.ProcessingMode_SEND,
		RequestBodyMode:     request,
		ResponseBodyMode:    response,
		RequestTrailerMode:  filterv3.ProcessingMode_SKIP,
		ResponseTrailerMode: filterv3.ProcessingMode_SEND,
	}
}

// withoutRequestBody holds, for each response body mode, an encoded mode
// override that keeps the request body from us. It goes with the answer to the
// request headers.
var withoutRequestBody = func() (t [BodyBufferedPartial + 1][]byte) {
	for mode := range t {
		t[mode] = wire.Fixed(&extprocv3.ProcessingResponse{ModeOverride: requestMode(BodyNone, BodyMode(mode))}).Whole
	}
	return t
}()

// streamResponse holds, for each request body mode, an encoded mode override that has
// answers streamed to us, and the answer to request headers with nothing but that.
var streamResponse = func() (t [BodyBufferedPartial + 1]struct {
	override []byte
	alone    *wire.Outbound
}) {
	for mode := range t {
		m := &extprocv3.ProcessingResponse{ModeOverride: requestMode(BodyMode(mode), BodyStreamed)}
		t[mode].override = wire.Fixed(m).Whole
		m.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}
		t[mode].alone = wire.Fixed(m)
	}
	return t
}()

// unbuffers reports whether the answer to the request headers shall say that answers be
// streamed where the proxy would hold them whole. In the answer to the response headers it
// would come too late: what has come of the answer by then may be larger than the proxy's
// buffer, and Envoy makes a 500 of it.
func (m *streamModes) unbuffers() bool {
	if !m.override || m.Request > BodyBufferedPartial || m.Response != BodyBuffered && m.Response != BodyBufferedPartial {
		return false
	}
	m.Response = BodyStreamed
	return true
}

// responseHead is the answer to response headers: it leaves the body mode as
// it is, or changes it to what the decision wants.
func (m *streamModes) responseHead(want bool) *wire.Outbound {
	if !m.override || m.Request > BodyBufferedPartial {
		return continueResponseHeaders
	}
	if want {
		if m.Response != BodyNone {
			return continueResponseHeaders
		}
		m.Response = BodyStreamed
		return responseOverrides[1][m.Request]
	}
	m.Response = BodyNone
	return responseOverrides[0][m.Request]
}
