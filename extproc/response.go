package extproc

import (
	"cmp"

	"google.golang.org/grpc/mem"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/request"
)

func (st *stream) responseHeaders(m *wire.Inbound) error {
	if st.modes.observe && !st.in.settled && st.request != nil {
		if err := st.place(bodyPrefix); err != nil {
			return err
		}
	}
	view := headerView{m.Headers}
	st.back.headSeen = true
	st.back.status = view.status()
	st.back.served = cmp.Or(m.Served, wire.Served(m.Metadata))
	st.noteServed()
	st.back.local, st.back.attempts = view.local(), view.attempts()
	st.kit.scan.Open(view.Get(wire.HeaderContentType), view.Get(wire.HeaderContentEncoding))
	report := kvtransfer.ParseReport(view.Get(request.HeaderKVTransfer))
	if faults := view.Get(request.HeaderFaults); faults != "" {
		report.Faults, st.back.faults = kvtransfer.ParseFaults(faults), true
	}
	st.observe(request.Event{Kind: request.EventHeaders, Status: st.back.status, Served: st.back.served, RetryAfter: view.retryAfter(st.p.opts.Now()), KVTransfer: report})
	if m.End {
		st.back.bare = st.modes.Response != BodyNone || view.Get(wire.HeaderContentLength) == "0"
		st.endResponse()
		return st.send(st.answered(continueResponseHeaders))
	}
	want := st.decision != nil && st.decision.WantBody
	if st.restores() && st.kit.rename.Open(view.Get(wire.HeaderContentType), view.Get(wire.HeaderContentEncoding), st.request.Model) {
		want = true
	}
	return st.send(st.answered(st.modes.responseHead(want)))
}

// answered adds the decision's response headers. Concatenated protocol buffer messages are one
// message: their fields are merged.
func (st *stream) answered(o *wire.Outbound) *wire.Outbound {
	report := st.p.opts.ReportServed
	if st.decision == nil || len(st.decision.AnswerHeaders) == 0 && !report && !st.kit.rename.On() && !st.back.faults {
		return o
	}
	var w wire.RouteWriter
	if st.kit.rename.On() {
		w.RemoveHeader(wire.HeaderContentLength)
	}
	if st.back.faults {
		w.RemoveHeader(request.HeaderFaults)
	}
	for _, h := range st.decision.AnswerHeaders {
		w.SetHeader(h.Name, h.Value)
	}
	if report {
		w.SetHeader(wire.HeaderConformance, cmp.Or(st.back.served, servedMissing))
	}
	w.Common = wire.AppendBytes(nil, wire.CommonHeaderMutation, w.Mutation)
	w.Reply = wire.AppendBytes(nil, 1, w.Common)
	return &wire.Outbound{Whole: wire.AppendBytes(append([]byte(nil), o.Whole...), wire.ReplyResponseHeaders, w.Reply)}
}

// servedMissing is the value for conformance tests if the proxy does not report the serving
// endpoint.
const servedMissing = "fail: missing destination endpoint served metadata"

// responseBody forwards a chunk of the response and scans it.
func (st *stream) responseBody(m *wire.Inbound) error {
	duplex := st.modes.Response == BodyFullDuplex
	if st.back.ended {
		if duplex {
			return nil
		}
		return st.send(continueResponseBody)
	}
	p := m.Bytes()
	st.back.bytes += len(p)
	tokens, first := st.kit.scan.Write(p)
	if id := st.kit.scan.ResponseID(); id != "" && !st.back.stored {
		st.back.stored = true
		st.observe(request.Event{Kind: request.EventStored, ResponseID: id})
	}
	if first {
		st.traceFirstToken()
		st.observe(request.Event{Kind: request.EventFirstToken})
	}
	if tokens > 0 {
		st.observe(request.Event{Kind: request.EventTokens, Tokens: tokens})
	}
	if m.End {
		st.back.bare = st.back.bytes == 0
		st.endResponse()
	}
	if st.kit.rename.On() {
		return st.renamedBody(m, duplex)
	}
	if duplex {
		return st.passChunk(wire.ReplyResponseBody, m)
	}
	return st.send(continueResponseBody)
}

// renamedBody handles a response chunk that may contain the model's name.
func (st *stream) renamedBody(m *wire.Inbound, duplex bool) error {
	p := m.Bytes()
	out := st.kit.rename.Write(p)
	changed := len(out) != len(p) || len(p) > 0 && &out[0] != &p[0]
	switch {
	case !changed && duplex:
		return st.passChunk(wire.ReplyResponseBody, m)
	case !changed:
		return st.send(continueResponseBody)
	case duplex:
		return st.sendChunks(wire.ReplyResponseBody, mem.SliceBuffer(out), m.End)
	case len(out) == 0:
		return st.send(clearResponseBody)
	default:
		return st.send(replaceResponse(out))
	}
}

func (st *stream) responseTrailers(m *wire.Inbound) error {
	if st.back.served == "" {
		st.back.served = wire.Served(m.Metadata)
	}
	st.back.bare = st.modes.Response != BodyNone && st.back.bytes == 0
	st.endResponse()
	return st.send(continueResponseTrailers)
}

// endResponse records the normal end of the response.
func (st *stream) endResponse() {
	st.back.ended = true
	st.eviction.rule()
	st.release(true, false)
}

// observe passes an event of the response path to the picker.
func (st *stream) observe(e request.Event) {
	if st.decision == nil || st.decision.Observe == nil || st.released {
		return
	}
	e.At = st.p.opts.Now()
	e.Status, e.Served = st.back.status, st.back.served
	e.Local, e.Attempts = st.back.local, st.back.attempts
	st.decision.Observe(e)
}
