package sidecar

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// Connector is a KV transfer protocol between engines.
type Connector uint8

// Connectors.
const (
	// NIXL is vLLM's NixlConnector, pull and push: the prefill response contains an object that the
	// decode request carries unchanged.
	NIXL Connector = iota
	// Storage is a store shared by both engines, such as LMCache: decode finds prefill's blocks by
	// content, without a KV transfer.
	Storage
	// SGLang sends both legs simultaneously. The engines meet at the prefill engine's bootstrap
	// server, in a room with a random number from the proxy.
	SGLang
	// Mooncake is vLLM's MooncakeConnector: two simultaneous legs with a common id; the prefill
	// engine's bootstrap server returns its ranks.
	Mooncake
	// Offloading is vLLM's peer-to-peer tier: two simultaneous legs; decode fetches available
	// blocks and computes the rest.
	Offloading
	// TRTLLM is TensorRT-LLM, context first: the context response contains an object and the
	// prompt's tokens, which the generation request carries.
	TRTLLM
)

// serve serves a request to be split.
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

// askKVTransfer is the object that makes a prefill engine keep its blocks.
const askKVTransfer = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`

const keyKVTransfer = "kv_transfer_params"

func (x *exchange) byNIXL() {
	if w := x.s.o.Write; w != nil && w.Parallel {
		x.byWrite()
		return
	}
	p := x.serially(x.api.PrefillBody(&x.body, kvtransfer.Edit{Key: keyKVTransfer, Value: x.askKVTransfer()}))
	if p == nil {
		x.fallBack()
		return
	}
	object := p.answer.Get(keyKVTransfer)
	switch {
	case p.rejected:
		x.local()
		return
	case !sound(object), x.lacksBlocks(p, object):
		x.noKVTransfer(p)
		return
	}
	x.salted()
	d := leg{body: x.body.Pieces(kvtransfer.Edit{Key: keyKVTransfer, Value: object}), cached: x.api.Cached(p.text)}
	if string(kvtransfer.Find(object, "transfer_mode")) != `"push"` { // decode reads memory of the prefill engine
		d.transfer = x.watchTransfer(p)
		defer d.transfer.stop()
	}
	if !kvtransfer.IsNull(kvtransfer.Find(object, "remote_prefill_cached_tokens")) {
		d.cached = -1 // decode reports it itself
	}
	x.hand(p, d, func() { x.release(object) })
}

// sound reports whether a decode engine can use a KV-transfer object. The rules follow the ways in which
// vLLM's NIXL connector reads it. An object without blocks, also in all of its groups, with other blocks than
// numbers or groups of numbers, or with a field of another type ends the engine. If a field that names the peer is missing,
// the request waits forever. An object that asks for blocks, as decode's for a next turn, pins blocks
// that no engine reads. Unknown fields are for other releases.
func sound(object []byte) bool {
	o, err := kvtransfer.Parse(object)
	if err != nil || string(o.Get("do_remote_decode")) == "true" {
		return false
	}
	for _, f := range transferFields {
		if v := o.Get(f.key); !kvtransfer.IsNull(v) && !f.sound(v) {
			return false
		}
	}
	push := string(o.Get("transfer_mode")) == `"push"` // decode names its own blocks
	grouped, ok := soundBlocks(o.Get("remote_block_ids"))
	if !ok && !push {
		return false
	}
	if !kvtransfer.IsNull(o.Get("transfer_id")) { // MoRI-IO
		return true
	}
	for _, key := range []string{"remote_engine_id", "remote_host", "remote_port"} {
		if kvtransfer.IsNull(o.Get(key)) {
			return false
		}
	}
	return !grouped || !kvtransfer.IsNull(o.Get("remote_request_id"))
}

// transferFields are the fields of KV-transfer objects that engines read, with the values that they
// accept.
var transferFields = []struct {
	key   string
	sound func(value []byte) bool
}{
	{"do_remote_prefill", func(v []byte) bool { return string(v) == "true" }},
	{"do_remote_decode", func(v []byte) bool { return string(v) == "false" }},
	{"remote_engine_id", isText}, {"remote_request_id", isText}, {"remote_host", isText}, {"transfer_id", isText}, {"transfer_mode", isText},
	{"remote_port", isPort}, {"remote_handshake_port", isPort}, {"remote_notify_port", isPort},
	{"tp_size", isSize}, {"dcp_size", isSize}, {"pp_size", isSize},
	{"remote_num_tokens", isCount}, {"remote_prefill_cached_tokens", isCount}, {"remote_registration_generation", isCount},
	{"remote_blocks_expiry_time", func(v []byte) bool { _, err := strconv.ParseFloat(string(v), 64); return err == nil }},
}

func isText(v []byte) bool  { return kvtransfer.Text(v) != "" }
func isCount(v []byte) bool { return integer(v) >= 0 }
func isSize(v []byte) bool  { return integer(v) >= 1 }
func isPort(v []byte) bool  { n := integer(v); return n >= 1 && n <= 65535 }

// integer returns the value of a whole number, -1 for others.
func integer(v []byte) int64 {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// soundBlocks reports whether a value is a list of block numbers, or of groups of these, with one number
// at least.
func soundBlocks(blocks []byte) (grouped, ok bool) {
	groups, ok := kvtransfer.Elements(blocks)
	if !ok || len(groups) == 0 {
		return false, false
	}
	grouped = groups[0][0] == '['
	named := 0
	for _, g := range groups {
		ids := [][]byte{g}
		if grouped {
			if ids, ok = kvtransfer.Elements(g); !ok {
				return grouped, false
			}
		}
		named += len(ids)
		if slices.ContainsFunc(ids, func(id []byte) bool { return !isCount(id) }) {
			return grouped, false
		}
	}
	return grouped, named > 0
}

// noKVTransfer serves a request whose prefill returned no KV transfer by the decode engine alone.
func (x *exchange) noKVTransfer(p *prefilled) {
	x.s.m.retries.WithLabelValues("no_hand_over").Inc()
	x.s.complain(handedNothing, p.target, nil)
	x.report.Local = kvtransfer.LocalNothing
	x.local()
}

// hand lets the decode engine respond with the KV transfer or, if that fails before the first
// content, without it. release frees blocks that will not be read.
func (x *exchange) hand(p *prefilled, d leg, release func()) {
	if x.r.Context().Err() != nil {
		release()
		return
	}
	if x.s.o.Now().Sub(p.at) > x.s.o.Lease*2/3 {
		x.s.m.retries.WithLabelValues("expired").Inc()
		x.s.complain(tooOld, p.target, nil)
		x.report.Target, x.report.Local = -1, kvtransfer.LocalLate
		x.finish(x.whole())
		return
	}
	d.again, d.suspectTransfer = true, true
	fault := x.decode(d)
	if fault != nil && fault.unsent && x.r.Context().Err() != nil {
		release()
		return
	}
	if fault != nil && fault.before && x.decodes < maxAttempts && x.r.Context().Err() == nil {
		reason := "transfer"
		if errors.Is(fault.err, errStale) {
			reason = "stale_transfer"
			x.s.complain(readFreed, p.target, nil)
		}
		if errors.Is(fault.err, errHead) {
			reason = "hang"
		}
		if fault.stale { // or the engine broke off at the KV transfer, which can be used once
			reason = "stale"
		}
		x.s.m.retries.WithLabelValues(reason).Inc()
		x.report.Target, x.report.Local = -1, kvtransfer.LocalTransfer
		if reason == "stale_transfer" {
			x.report.Local = kvtransfer.LocalLate
		}
		why := fault
		if fault = x.whole(); fault == nil && x.status/100 == 2 && reason == "transfer" { // otherwise the KV transfer was not the cause
			x.s.complain(transferFailed, p.target, why)
		}
	}
	x.finish(fault)
}

// askKVTransfer returns the KV transfer field of the prefill leg.
func (x *exchange) askKVTransfer() []byte {
	asked := []byte(askKVTransfer)
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

// release makes the decode engine free unread blocks: it rejects a request without tokens and
// notifies the prefill engine. Otherwise they would be kept for the whole lease.
func (x *exchange) release(object []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), releaseTime)
	defer cancel()
	body := []byte(`{"prompt":".","max_tokens":0}`)
	o, err := kvtransfer.Parse(body)
	if err != nil {
		return // cannot happen with this body
	}
	edits := []kvtransfer.Edit{{Key: keyKVTransfer, Value: object}}
	if model := x.body.Get("model"); model != nil {
		edits = append(edits, kvtransfer.Edit{Key: "model", Value: model})
	}
	r := x.request(ctx, x.s.engine, o.Pieces(edits...))
	x.continueTrace(r.Header, nil)
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery = "/v1/completions", "", ""
	resp, err := x.s.o.Transport.RoundTrip(r)
	if err != nil {
		x.s.m.releases.WithLabelValues("failed").Inc()
		return
	}
	resp.Body.Close()
	x.s.m.releases.WithLabelValues("sent").Inc()
}

// fallBack serves a request after all prefill engines failed.
func (x *exchange) fallBack() {
	if x.r.Context().Err() != nil {
		return
	}
	if x.condemned {
		x.condemn()
		return
	}
	if x.s.o.NoFallback {
		x.fail(http.StatusServiceUnavailable, "no prefill engine could be reached")
		return
	}
	x.s.m.retries.WithLabelValues("no_prefill").Inc()
	x.local()
}
