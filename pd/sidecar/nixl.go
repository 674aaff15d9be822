package sidecar

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// Connector is a way in which KV caches travel between engines.
type Connector uint8

// Connectors.
const (
	// NIXL is vLLM's NixlConnector, pull and push: the prefill answer holds an object
	// that the decode request carries unchanged.
	NIXL Connector = iota
	// Storage is a store that both engines share, such as LMCache: what prefill has
	// computed decode finds by its content, without a hand-over.
	Storage
	// SGLang sends both legs at once; the engines meet in a room whose number the
	// proxy draws, at the prefill engine's bootstrap server.
	SGLang
	// Mooncake is vLLM's MooncakeConnector: both legs at once, known to each other by an
	// id; a bootstrap server beside the prefill engine tells its ranks.
	Mooncake
	// Offloading is vLLM's peer-to-peer tier: both legs at once; decode fetches what it
	// finds and computes the rest.
	Offloading
	// TRTLLM is TensorRT-LLM, context first: the context answer holds an object, and the
	// prompt's tokens, that the generation request carries.
	TRTLLM
)

// serve answers a request that is to be split.
func (c Connector) serve(x *exchange) {
	switch c {
	case Storage:
		x.byStorage()
	case SGLang:
		x.byRoom()
	case Mooncake:
		x.byMooncake()
	case Offloading:
		x.byOffloading()
	case TRTLLM:
		x.byTRTLLM()
	default:
		x.byNIXL()
	}
}

// askHandOver is the object that has a prefill engine keep its blocks.
const askHandOver = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`

const keyHandOver = "kv_transfer_params"

func (x *exchange) byNIXL() {
	if w := x.s.o.Write; w != nil && w.Parallel {
		x.byWrite()
		return
	}
	p := x.serially(x.api.PrefillBody(&x.body, kvtransfer.Edit{Key: keyHandOver, Value: x.askHandOver()}))
	if p == nil {
		x.fallBack()
		return
	}
	object := p.answer.Get(keyHandOver)
	switch {
	case p.rejected:
		x.local()
		return
	case !sound(object):
		x.noHandOver(p)
		return
	}
	d := leg{body: x.body.Pieces(kvtransfer.Edit{Key: keyHandOver, Value: object}), cached: x.api.Cached(p.text)}
	if !kvtransfer.IsNull(kvtransfer.Find(object, "remote_prefill_cached_tokens")) {
		d.cached = -1 // decode reports it by itself
	}
	x.hand(p, d, func() { x.release(object) })
}

// sound reports whether a decode engine can use a KV-transfer object. The rules follow the reader,
// vLLM's NIXL connector: an object without blocks, or with anything but numbers or groups of numbers
// for blocks, ends the engine. One that has groups but no request id is waited for without end. One
// that asks for blocks, as decode's for a next turn, has them kept and read by nobody.
func sound(object []byte) bool {
	o, err := kvtransfer.Parse(object)
	if err != nil || string(o.Get("do_remote_prefill")) == "false" || string(o.Get("do_remote_decode")) == "true" {
		return false
	}
	blocks := o.Get("remote_block_ids")
	groups, ok := kvtransfer.Elements(blocks)
	ok = ok && len(groups) > 0
	grouped := ok && groups[0][0] == '['
	for _, g := range groups {
		ids := [][]byte{g}
		if grouped {
			var list bool
			ids, list = kvtransfer.Elements(g)
			ok = ok && list
		}
		ok = ok && !slices.ContainsFunc(ids, func(id []byte) bool { return len(id) == 0 || id[0] < '0' || id[0] > '9' })
	}
	if string(o.Get("transfer_mode")) == `"push"` { // decode names its own
		ok = true
	}
	return ok && (!grouped || !kvtransfer.IsNull(o.Get("remote_request_id")) || !kvtransfer.IsNull(o.Get("transfer_id")))
}

// noHandOver has the decode engine serve a request whose prefill handed nothing over.
func (x *exchange) noHandOver(p *prefilled) {
	x.s.m.retries.WithLabelValues("no_hand_over").Inc()
	x.s.complain(handedNothing, p.target, nil)
	x.local()
}

// hand has the decode engine answer with what prefill has handed over, or, where that
// fails before the first content, without it. release gives up what nobody will read.
func (x *exchange) hand(p *prefilled, d leg, release func()) {
	whole := leg{body: x.text(), cached: -1}
	if x.r.Context().Err() != nil {
		release()
		return
	}
	if x.s.o.Now().Sub(p.at) > x.s.o.Lease*2/3 {
		x.s.m.retries.WithLabelValues("expired").Inc()
		x.s.complain(tooOld, p.target, nil)
		x.report.Target = -1
		x.finish(x.decode(whole))
		return
	}
	d.again, d.doubted = true, true
	fault := x.decode(d)
	if fault != nil && fault.unsent && x.r.Context().Err() != nil {
		release()
		return
	}
	if fault != nil && fault.before && x.decodes < maxAttempts && x.r.Context().Err() == nil {
		reason := "transfer"
		if fault.stale { // or the engine has broken off at the hand-over: it is used once
			reason = "stale"
		}
		x.s.m.retries.WithLabelValues(reason).Inc()
		x.report.Target = -1
		why := fault
		if fault = x.decode(whole); fault == nil && x.status/100 == 2 && !why.stale { // else it is no matter of the hand-over
			x.s.complain(transferFailed, p.target, why)
		}
	}
	x.finish(fault)
}

// askHandOver returns the hand-over member of the prefill leg.
func (x *exchange) askHandOver() []byte {
	asked := []byte(askHandOver)
	if x.s.o.Write != nil {
		asked = x.s.o.Write.asked(quote("tx" + x.s.o.UUID()))
	}
	if !x.s.o.P2PPull {
		return asked
	}
	source := x.source(x.targets[0])
	o, err := kvtransfer.Parse(asked)
	if source == nil || err != nil {
		return asked
	}
	return o.With(kvtransfer.Edit{Key: "remote_kv_source", Value: source})
}

// releaseTime bounds the request that frees blocks.
const releaseTime = 10 * time.Second

// release has the decode engine give blocks up that nobody will read: it refuses a
// request without tokens, and tells the prefill engine so. Otherwise they would be
// kept for the whole lease.
func (x *exchange) release(object []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), releaseTime)
	defer cancel()
	body := []byte(`{"prompt":".","max_tokens":0}`)
	o, err := kvtransfer.Parse(body)
	if err != nil {
		return // not with this body
	}
	edits := []kvtransfer.Edit{{Key: keyHandOver, Value: object}}
	if model := x.body.Get("model"); model != nil {
		edits = append(edits, kvtransfer.Edit{Key: "model", Value: model})
	}
	r := x.request(ctx, x.s.engine, o.Pieces(edits...))
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery = "/v1/completions", "", ""
	resp, err := x.s.o.Transport.RoundTrip(r)
	if err != nil {
		x.s.m.releases.WithLabelValues("failed").Inc()
		return
	}
	resp.Body.Close()
	x.s.m.releases.WithLabelValues("sent").Inc()
}

// fallBack serves a request that no prefill engine could take.
func (x *exchange) fallBack() {
	if x.r.Context().Err() != nil {
		return
	}
	if x.s.o.NoFallback {
		x.fail(http.StatusServiceUnavailable, "no prefill engine could be asked")
		return
	}
	x.s.m.retries.WithLabelValues("no_prefill").Inc()
	x.local()
}
