package request

import (
	"strconv"
	"time"
)

// Request headers that the picker reads, lower case. Where two spellings are
// in use, the first one found wins.
const (
	HeaderObjective      = "x-gateway-inference-objective"
	HeaderObjectiveAlt   = "x-llm-d-inference-objective"
	HeaderFairness       = "x-gateway-inference-fairness-id"
	HeaderFairnessAlt    = "x-llm-d-inference-fairness-id"
	HeaderModelRewrite   = "x-gateway-model-name-rewrite"
	HeaderModelRewrite2  = "x-llm-d-model-name-rewrite"
	HeaderSLOTTFT        = "x-slo-ttft-ms"
	HeaderSLOTTFTAlt     = "x-llm-d-slo-ttft-ms"
	HeaderSLOTPOT        = "x-slo-tpot-ms"
	HeaderSLOTPOTAlt     = "x-llm-d-slo-tpot-ms"
	HeaderSession        = "x-session-id"
	HeaderSessionToken   = "x-session-token"
	HeaderTestSelection  = "test-epp-endpoint-selection"
	HeaderPrefiller      = "x-prefiller-host-port"
	HeaderEncoders       = "x-encoder-hosts-ports"
	HeaderDataParallel   = "x-data-parallel-host-port"
	maxSLO               = time.Hour
	maxHeaderValueLength = 1024
)

// readHeaders fills what headers say about a request.
func readHeaders(r *Request) {
	if r.Headers == nil {
		return
	}
	r.Objective = header(r.Headers, HeaderObjective, HeaderObjectiveAlt)
	r.FairnessID = header(r.Headers, HeaderFairness, HeaderFairnessAlt)
	r.Target = header(r.Headers, HeaderModelRewrite, HeaderModelRewrite2)
	r.Session = header(r.Headers, HeaderSession, HeaderSessionToken)
	r.SLOTTFT = milliseconds(header(r.Headers, HeaderSLOTTFT, HeaderSLOTTFTAlt))
	r.SLOTPOT = milliseconds(header(r.Headers, HeaderSLOTPOT, HeaderSLOTPOTAlt))
}

// header returns the value of the first of two spellings that is set. Absurdly
// long values count as absent.
func header(h Headers, name, alt string) string {
	v := h.Get(name)
	if v == "" {
		v = h.Get(alt)
	}
	if len(v) > maxHeaderValueLength {
		return ""
	}
	return v
}

// milliseconds reads a positive number of milliseconds, 0 when there is none.
func milliseconds(s string) time.Duration {
	if s == "" {
		return 0
	}
	ms, err := strconv.ParseFloat(s, 64)
	if err != nil || !(ms > 0) {
		return 0
	}
	return time.Duration(min(ms, float64(maxSLO/time.Millisecond)) * float64(time.Millisecond))
}
