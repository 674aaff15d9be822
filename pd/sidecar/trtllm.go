package sidecar

import (
	"net/http"
	"strconv"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

const keyDisagg = "disaggregated_params"

// firstRequest is the lowest id assigned by proxies. Engines count from 0 themselves.
const firstRequest = 1 << 42

// byTRTLLM serves a request by a context leg whose response contains the input of the generation
// leg: the first token and the prompt's tokens, which TensorRT-LLM engines use.
func (x *exchange) byTRTLLM() {
	id := strconv.AppendUint(nil, max(x.s.o.Random()>>1, firstRequest), 10)
	style, null := []byte("0"), []byte("null")
	asked := object("request_type", quote("context_only"), "disagg_request_id", id, "schedule_style", style, "conversation_id", null)
	p := x.serially(x.body.Pieces(kvtransfer.Edit{Key: keyDisagg, Value: asked}, kvtransfer.Edit{Key: "stream", Value: []byte("false")}, kvtransfer.Edit{Key: "stream_options"}))
	if p == nil {
		x.fallBack()
		return
	}
	if p.rejected {
		x.local()
		return
	}
	choices, _ := kvtransfer.Elements(p.answer.Get("choices"))
	if len(choices) != 1 {
		choices = [][]byte{nil}
	}
	switch kvtransfer.Text(kvtransfer.Find(choices[0], "finish_reason")) {
	case "length", "not_finished":
	case "":
		x.noKVTransfer(p)
		return
	default:
		x.answered(p, choices[0])
		return
	}
	params, err := kvtransfer.Parse(kvtransfer.Find(choices[0], keyDisagg))
	if err != nil || kvtransfer.IsNull(params.Get("ctx_request_id")) {
		x.noKVTransfer(p)
		return
	}
	edits := []kvtransfer.Edit{{Key: "request_type", Value: quote("generation_only")}, {Key: "schedule_style", Value: style}, {Key: "conversation_id", Value: null}}
	if usage := p.answer.Get("usage"); usage != nil {
		edits = append(edits, kvtransfer.Edit{Key: "ctx_usage", Value: usage})
	}
	set := []kvtransfer.Edit{{Key: keyDisagg, Value: params.With(edits...)}}
	if tokens := p.answer.Get("prompt_token_ids"); !kvtransfer.IsNull(tokens) {
		key := "prompt_token_ids"
		if x.api == kvtransfer.Completions {
			key = "prompt"
		}
		set = append(set, kvtransfer.Edit{Key: key, Value: tokens})
	}
	x.hand(p, leg{body: x.body.Pieces(set...), cached: -1}, func() {}) // there is no known way to free its blocks
}

// answered forwards an answer that ended with the context leg, whose first token was the last. It
// converts it to a stream if the client requested one.
func (x *exchange) answered(p *prefilled, choice []byte) {
	kind, body := "application/json", x.api.StripTransfer(p.answer.With(kvtransfer.Edit{Key: "prompt_token_ids"}), false)
	if string(x.body.Get("stream")) == "true" {
		kind, body = "text/event-stream", x.api.AsStream(&p.answer, choice, string(kvtransfer.Find(x.body.Get("stream_options"), "include_usage")) == "true")
	}
	h := x.w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.reportKVTransfer()
	x.reportFaults()
	x.w.WriteHeader(http.StatusOK)
	_, _ = x.w.Write(body) // the client may have disconnected
}
