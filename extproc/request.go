package extproc

import (
	"math/rand/v2"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	grpcmeta "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grapevine-epp/grapevine/extproc/internal/wire"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// errLateHead ends a stream with a second set of request headers.
var errLateHead = status.Error(codes.InvalidArgument, "extproc: request headers are not the first part of the request")

func (st *stream) requestHeaders(m *wire.Inbound) error {
	if st.request != nil {
		return errLateHead
	}
	view := headerView{m.Headers}
	st.open(view, m.Metadata)
	length := view.contentLength()
	if length > int64(st.p.opts.MaxBody) {
		return st.refuse(st.tooLarge())
	}
	if !st.p.opts.PassControl && request.Controls(view.path()) {
		return st.refuse(request.Errorf(request.ReasonForbidden, "engine control calls are not forwarded"))
	}
	if view.upgrades() {
		return st.refuse(request.Errorf(request.ReasonBadRequest, "an upgrade begins with GET"))
	}
	if m.End && st.p.opts.Answer != nil {
		if status, body, ok := st.p.opts.Answer(view.Get(wire.HeaderMethod), st.request.Path); ok {
			return st.answerFor(status, body)
		}
	}
	switch {
	case m.End:
		st.in.ended = true
		return st.placeHead(bodyAbsent)
	case st.modes.choosesAtHead():
		if done, err := st.rewritesUnseen(view); done || err != nil {
			return err
		}
		return st.placeHead(bodyAbsent)
	case view.bodyUnread() && !st.readsForm(view, length):
		return st.placeUnread()
	case st.modes.holdsHead():
		st.in.headHeld = true
		st.in.body.expect = int(max(length, 0))
		return nil
	default:
		if o := st.modes.headOverride(); o != nil {
			return st.send(o.alone)
		}
		return st.send(continueRequestHeaders)
	}
}

// maxBufferedForm is the longest upload that is read behind an Envoy that buffers it with an
// unknown limit. Above its limit Envoy responds 413 itself.
const maxBufferedForm = 1 << 20

// readsForm reports whether to read an upload for its model.
func (st *stream) readsForm(view headerView, length int64) bool {
	if st.p.opts.Forms == nil || length == 0 || !view.form() {
		return false
	}
	held := st.modes.Request == BodyBuffered && !retries(st.ctx) // by an Envoy with a configuration that is not ours
	if held && (length < 0 || length > maxBufferedForm) || !st.p.opts.Forms() {
		return false
	}
	st.in.upload = length < 0
	return true
}

// maxUploadHeld is the size up to which an upload of unknown length is buffered to find its model.
// A longer one is scheduled by the data received, and the rest is forwarded.
const maxUploadHeld = 8 << 20

// placeUnread places a request by its headers alone, because its body is endless or not read. It
// instructs Envoy not to hold the body; otherwise a WebSocket would wait forever.
func (st *stream) placeUnread() error {
	if err := st.place(bodyAbsent); err != nil {
		return err
	}
	answer := st.kit.route.Finish(wire.ReplyRequestHeaders, nil)
	if st.modes.override && !st.modes.early {
		if st.modes.Response != BodyStreamed { // an endless response must not be buffered either
			st.modes.Response = BodyNone
		}
		answer = append(answer, withoutRequestBody[st.modes.Response]...)
		st.modes.Request = BodyNone
	} else if o := st.modes.headOverride(); o != nil {
		answer = append(answer, o.override...)
	}
	return st.send(&wire.Outbound{Whole: answer})
}

// open begins the request from its headers. view is empty if the proxy sent none.
func (st *stream) open(view headerView, metadata []byte) {
	r := &request.Request{ID: view.Get(wire.HeaderRequestID), Path: view.path(), Query: view.query(), Headers: view}
	if r.ID == "" {
		r.ID = strconv.FormatUint(rand.Uint64(), 16)
	}
	if !st.p.opts.IgnoreSubset {
		r.Subset, r.HasSubset = wire.Subset(metadata)
	}
	if v := grpcmeta.ValueFromIncomingContext(st.ctx, request.MetadataImport); len(v) > 0 {
		r.Import = v[0]
	}
	r.Waited = waited(st.ctx)
	r.Moves = moves(st.ctx)
	st.request = r
	st.beginTrace(view)
}

func (st *stream) requestBody(m *wire.Inbound) error {
	if st.request == nil { // the proxy sends no request headers
		st.open(headerView{}, nil)
	}
	st.in.bytes += len(m.Bytes())
	switch st.modes.Request {
	case BodyBuffered, BodyBufferedPartial:
		return st.bufferedBody(m)
	case BodyStreamed, BodyNone:
		return st.streamedBody(m)
	default:
		return st.duplexBody(m)
	}
}

// duplexBody holds the body until it is complete. Data after the end is dropped: some Envoy
// releases send a second end for large bodies (envoy #46237).
func (st *stream) duplexBody(m *wire.Inbound) error {
	if st.in.ended {
		return nil
	}
	if st.in.settled { // placed by its headers: forward it
		st.in.ended = m.End
		return st.passChunk(wire.ReplyRequestBody, m)
	}
	if err := st.hold(m); err != nil {
		return err
	}
	switch {
	case m.End:
		st.in.ended = true
		return st.flushDuplex(bodyWhole, true)
	case st.in.upload && len(st.in.body.data) >= min(maxUploadHeld, st.p.opts.MaxBody/2):
		return st.flushDuplex(bodyPrefix, false)
	}
	return nil
}

// flushDuplex places a request by the held data and sends it. end is false if trailers or the rest
// of an upload follow.
func (st *stream) flushDuplex(extent bodyExtent, end bool) error {
	if err := st.place(extent); err != nil {
		return err
	}
	if err := st.answerHead(); err != nil {
		return err
	}
	body := st.in.body.seal()
	if st.in.renamed != nil {
		body = mem.SliceBuffer(st.in.renamed)
	}
	err := st.sendChunks(wire.ReplyRequestBody, body, end)
	st.dropBody()
	return err
}

// bufferedBody replies to the single message with the body or its beginning.
func (st *stream) bufferedBody(m *wire.Inbound) error {
	if st.in.settled {
		return st.send(continueRequestBody)
	}
	if err := st.hold(m); err != nil {
		return err
	}
	st.in.ended = m.End
	extent := bodyWhole
	if st.modes.Request == BodyBufferedPartial && !m.End {
		extent = bodyPrefix
	}
	if err := st.place(extent); err != nil {
		return err
	}
	if st.in.renamed != nil && st.modes.Request == BodyBuffered {
		// Envoy rejects a new body whose length differs from the declared one. In BUFFERED_PARTIAL
		// it drops the header, because the rest is still to come.
		st.kit.route.SetHeader(wire.HeaderContentLength, strconv.Itoa(len(st.in.renamed)))
	}
	err := st.sendRoute(wire.ReplyRequestBody, st.in.renamed)
	st.dropBody()
	return err
}

// streamedBody replies chunk by chunk, or buffers the chunks until the headers are answered.
func (st *stream) streamedBody(m *wire.Inbound) error {
	st.in.ended = st.in.ended || m.End
	if st.in.settled || !st.modes.holdsHead() {
		return st.send(continueRequestBody)
	}
	if err := st.hold(m); err != nil {
		return err
	}
	st.in.chunks++
	switch {
	case m.End:
		return st.flushStreamed(bodyWhole)
	case len(st.in.body.data) >= defaultEarlyHold && !st.modes.observe:
		return st.flushStreamed(bodyPrefix)
	default:
		return nil
	}
}

// flushStreamed places the request by the held data, and replies to the headers and to each held
// chunk.
func (st *stream) flushStreamed(extent bodyExtent) error {
	if err := st.place(extent); err != nil {
		return err
	}
	if err := st.answerHead(); err != nil {
		return err
	}
	rest := continueRequestBody
	if st.in.renamed != nil && st.in.chunks > 0 {
		rest = clearRequestBody
		st.in.chunks--
		if err := st.send(replaceChunk(st.in.renamed)); err != nil {
			return err
		}
	}
	st.dropBody()
	for ; st.in.chunks > 0; st.in.chunks-- {
		if err := st.send(rest); err != nil {
			return err
		}
	}
	return nil
}

// requestTrailers handles the end of a body without its own end mark.
func (st *stream) requestTrailers() error {
	if st.request == nil {
		st.open(headerView{}, nil)
	}
	wasEnded := st.in.ended
	st.in.ended = true
	if st.in.settled || wasEnded {
		return st.send(continueRequestTrailers)
	}
	switch {
	case st.in.headHeld && st.modes.Request == BodyFullDuplex:
		if err := st.flushDuplex(bodyWhole, false); err != nil {
			return err
		}
		return st.send(continueRequestTrailers)
	case st.in.headHeld:
		if err := st.flushStreamed(bodyWhole); err != nil {
			return err
		}
		return st.send(continueRequestTrailers)
	default:
		if err := st.place(bodyAbsent); err != nil {
			return err
		}
		return st.sendRoute(wire.ReplyRequestTrailers, nil)
	}
}

// answerHead replies to held headers with the destination.
func (st *stream) answerHead() error {
	if !st.in.headHeld {
		return nil
	}
	st.in.headHeld = false
	return st.sendRoute(wire.ReplyRequestHeaders, nil)
}

// hold stores a chunk of the request body, up to the limit.
func (st *stream) hold(m *wire.Inbound) error {
	if len(st.in.body.data)+len(m.Bytes()) > st.p.opts.MaxBody {
		return st.refuse(st.tooLarge())
	}
	if !st.in.memory.Take(len(m.Bytes())) {
		return st.refuse(request.Errorf(request.ReasonOverloaded, "the endpoint picker has no memory left for this request's body; try again"))
	}
	st.in.body.add(m)
	if !m.End {
		st.in.memory.Wait()
		st.guard.ShortenTimeout(st.p.opts.BodyTimeout, max(st.in.body.expect, len(st.in.body.data)))
	}
	return nil
}

// dropBody frees the request's body once it has been placed and forwarded.
func (st *stream) dropBody() {
	st.in.body.release()
	st.in.memory.End()
	st.in.renamed = nil
	if st.request != nil {
		st.request.Drop()
	}
}

func (st *stream) tooLarge() *request.Error {
	return request.Errorf(request.ReasonTooLarge, "request body exceeds the limit of %d bytes", st.p.opts.MaxBody)
}
