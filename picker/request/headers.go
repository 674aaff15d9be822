package request

import (
	"strconv"
	"strings"
	"time"
)

// Request headers that the picker reads, lower case. Where two spellings are
// in use, the newer one counts, and Alt is the older.
const (
	HeaderObjective       = "x-llm-d-inference-objective"
	HeaderObjectiveAlt    = "x-gateway-inference-objective"
	HeaderFairness        = "x-llm-d-inference-fairness-id"
	HeaderFairnessAlt     = "x-gateway-inference-fairness-id"
	HeaderModelRewrite    = "x-llm-d-model-name-rewrite"
	HeaderModelRewriteAlt = "x-gateway-model-name-rewrite"
	HeaderSLOTTFT         = "x-llm-d-slo-ttft-ms"
	HeaderSLOTTFTAlt      = "x-slo-ttft-ms"
	HeaderSLOTPOT         = "x-llm-d-slo-tpot-ms"
	HeaderSLOTPOTAlt      = "x-slo-tpot-ms"
	HeaderPrefer          = "prefer"
	HeaderQueueTTL        = "x-grapevine-queue-ttl-ms"
	HeaderClusters        = "x-grapevine-clusters"
	HeaderSession         = "x-session-id"
	HeaderSessionToken    = "x-session-token"
	HeaderTestSelection   = "test-epp-endpoint-selection"
	HeaderPrefiller       = "x-prefiller-host-port"
	HeaderEncoders        = "x-encoder-hosts-ports"
	HeaderDataParallel    = "x-data-parallel-host-port"
	headerUserAgent       = "user-agent"
	maxProduct            = 48
	maxSLO                = time.Hour
	maxHeaderValueLength  = 1024
)

// Names under which pickers speak to proxies, sidecars and engines.
const (
	HeaderDestination = "x-gateway-destination-endpoint"
	HeaderSubset      = HeaderDestination + "-subset"
	HeaderServed      = HeaderDestination + "-served"
	HeaderFallback    = HeaderDestination + "-fallback"
	HeaderScores      = HeaderDestination + "-scores"
	HeaderKVSource    = "x-kv-cache-source-host-port"
	HeaderConformance = "x-conformance-test-served-endpoint"
	HeaderSignature   = "x-grapevine-targets-signature"
	// HeaderHandOver is on answers: the sidecar's report (package handover).
	HeaderHandOver = "x-grapevine-hand-over"
	// HeaderFaults is on answers: which prefill legs were asked in vain, and why. The picker
	// takes it off.
	HeaderFaults = "x-grapevine-prefill-faults"
	// HeaderHop is the token of a request that another cluster of the federation sent. It
	// is signed, and comes through the gateway as the client's headers do: proxies leave it
	// to the picker, which believes what it can verify.
	HeaderHop = "x-grapevine-hop"
)

// preferAvailable is the value of HeaderPrefer by which a request asks for an endpoint
// that holds its prompt.
const preferAvailable = "if-available"

// MetadataImport is the initial metadata of an ext_proc stream by which a route names
// the import that its requests are for: namespace/name.
const MetadataImport = "x-grapevine-import"

// MetadataRetries is the initial metadata of an ext_proc stream in which a proxy says that
// pickers may tell it, by Envoy's own headers, what to try again.
const MetadataRetries = "x-grapevine-retries"

// MetadataDestinations is the initial metadata of an ext_proc stream in which a
// proxy announces how many addresses it takes in one answer.
const MetadataDestinations = "x-grapevine-destinations"

// RoutingHeaders returns the request headers by which a picker speaks to
// proxies, sidecars and engines. Only the picker may set them: a sidecar calls
// the addresses that it finds there. What a client sent under these names never
// counts.
func RoutingHeaders() []string {
	return []string{
		HeaderDestination, HeaderServed, HeaderSubset, HeaderFallback, HeaderScores,
		HeaderPrefiller, HeaderEncoders, HeaderDataParallel, HeaderKVSource, HeaderConformance, HeaderSignature, HeaderHop,
	}
}

// readHeaders fills what headers say about a request.
func readHeaders(r *Request) {
	if r.Headers == nil {
		return
	}
	r.Objective = header(r.Headers, HeaderObjective, HeaderObjectiveAlt)
	r.FairnessID = header(r.Headers, HeaderFairness, HeaderFairnessAlt)
	r.Tenant = r.FairnessID
	r.Client = product(r.Headers.Get(headerUserAgent))
	r.Target = header(r.Headers, HeaderModelRewrite, HeaderModelRewriteAlt)
	r.Session = header(r.Headers, HeaderSession, HeaderSessionToken)
	r.QueueTTL = milliseconds(r.Headers.Get(HeaderQueueTTL))
	r.SLOTTFT = milliseconds(header(r.Headers, HeaderSLOTTFT, HeaderSLOTTFTAlt))
	r.Clusters = header(r.Headers, HeaderClusters, HeaderClusters)
	r.IfAvailable = strings.Contains(r.Headers.Get(HeaderPrefer), preferAvailable)
	r.SLOTPOT = milliseconds(header(r.Headers, HeaderSLOTPOT, HeaderSLOTPOTAlt))
}

// header returns the value of the newer of two spellings, or that of the older. Absurdly
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

// product returns the first product of a User-Agent, without its version.
func product(agent string) string {
	name, _, _ := strings.Cut(agent, "/")
	name, _, _ = strings.Cut(name, " ")
	if len(name) > maxProduct {
		return ""
	}
	return name
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

// HeaderSet is one header to be set, on the request sent upstream or on its
// answer.
type HeaderSet struct{ Name, Value string }
