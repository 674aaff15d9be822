package extproc

import (
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
)

// BodyMode is the way a proxy sends a body.
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

// streamModes are the settings of one stream.
type streamModes struct {
	Modes
	early    bool // STREAMED bodies arrive before the header reply
	observe  bool // no replies may be sent
	override bool // mode_override is honored, and may ask for bodies
	quiet    bool // mode_override is honored, and responses are sent only if an override requests that
}

// modesOf reads the settings from the first message of a stream. quiet is the filter's statement in the
// stream's metadata.
func modesOf(m *wire.Inbound, o *Options, quiet bool) streamModes {
	sm := streamModes{Modes: Modes{BodyFullDuplex, BodyFullDuplex}, observe: m.Observe}
	if o.Assume != nil {
		sm.Modes = *o.Assume
	}
	if c := &m.Config; c.Present {
		sm.Request, sm.Response, sm.early = known(c.Request, sm.Request), known(c.Response, sm.Response), c.Early
		// Envoy honors an override only under these conditions, and otherwise counts it as
		// spurious.
		possible := !sm.early && !sm.observe && sm.Request != BodyFullDuplex && sm.Response != BodyFullDuplex
		sm.override, sm.quiet = o.AllowModeOverride && possible, quiet && possible
	}
	if sm.observe {
		// The proxy waits for no reply, so the request is placed with the data received when its
		// body ends or its response begins.
		sm.Modes = Modes{BodyStreamed, BodyNone}
	}
	return sm
}

// known returns m if this version supports the mode, otherwise the default.
func known(m, otherwise BodyMode) BodyMode {
	if m < BodyNone || m > BodyFullDuplex {
		return otherwise
	}
	return m
}

// holdsHead reports whether the request headers stay unanswered until the body has arrived.
func (m *streamModes) holdsHead() bool {
	return m.Request == BodyFullDuplex || m.Request == BodyStreamed && (m.early || m.observe)
}

// choosesAtHead reports whether the request must be placed by its headers, because no body arrives
// in time.
func (m *streamModes) choosesAtHead() bool {
	return m.Request == BodyNone || m.Request == BodyStreamed && !m.early && !m.observe
}

// responseOverrides holds the prepared replies to response headers that switch the response body on
// or off, per request body mode. Both request trailers, which keep the stream open until the
// response ends. The load tracker removes the request then.
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

// bufferRequestBody holds, per response body mode, the reply to request headers that requests the
// whole body before placement.
var bufferRequestBody = func() (t [BodyBufferedPartial + 1]*wire.Outbound) {
	for mode := range t {
		t[mode] = wire.Fixed(&extprocv3.ProcessingResponse{
			Response:     &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}},
			ModeOverride: requestMode(BodyBuffered, BodyMode(mode)),
		})
	}
	return t
}()

// requestMode returns a mode override for the reply to request headers.
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

// withoutRequestBody holds, per response body mode, an encoded mode override that disables the
// request body. It is part of the reply to request headers.
var withoutRequestBody = func() (t [BodyBufferedPartial + 1][]byte) {
	for mode := range t {
		t[mode] = wire.Fixed(&extprocv3.ProcessingResponse{ModeOverride: requestMode(BodyNone, BodyMode(mode))}).Whole
	}
	return t
}()

// headOverride is a mode override for a reply to request headers: encoded, and as a reply with only that.
type headOverride struct {
	override []byte
	alone    *wire.Outbound
}

// headOverrides holds an override per request and response body mode.
var headOverrides = func() (t [BodyBufferedPartial + 1][BodyBufferedPartial + 1]headOverride) {
	for req := range t {
		for resp := range t[req] {
			m := &extprocv3.ProcessingResponse{ModeOverride: requestMode(BodyMode(req), BodyMode(resp))}
			t[req][resp].override = wire.Fixed(m).Whole
			m.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}
			t[req][resp].alone = wire.Fixed(m)
		}
	}
	return t
}()

// headOverride returns the override that the reply to request headers must have, nil for none.
func (m *streamModes) headOverride() *headOverride {
	if m.unbuffers() || m.quiet {
		return &headOverrides[m.Request][m.Response]
	}
	return nil
}

// unbuffers reports whether the reply to request headers must request streamed responses from a
// proxy that would buffer them. The reply to response headers would be too late: the buffered part
// may already exceed the proxy's limit, and Envoy then responds with 500.
func (m *streamModes) unbuffers() bool {
	if !m.override || m.Request > BodyBufferedPartial || m.Response != BodyBuffered && m.Response != BodyBufferedPartial {
		return false
	}
	m.Response = BodyStreamed
	return true
}

// responseHead returns the reply to response headers. It changes the body mode if the decision
// requires that.
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
