package request

import (
	"strconv"
	"strings"
	"time"
)

// Request headers that the picker reads, in lower case. Alt is the older of two spellings; the
// newer one takes precedence.
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
	HeaderQueueTTLAlt     = "x-llm-d-inference-ttl" // a Go duration
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

// Headers that pickers use towards proxies, sidecars and engines.
const (
	HeaderDestination = "x-gateway-destination-endpoint"
	HeaderSubset      = HeaderDestination + "-subset"
	HeaderServed      = HeaderDestination + "-served"
	HeaderFallback    = HeaderDestination + "-fallback"
	HeaderScores      = HeaderDestination + "-scores"
	HeaderKVSource    = "x-kv-cache-source-host-port"
	HeaderConformance = "x-conformance-test-served-endpoint"
	HeaderSignature   = "x-grapevine-targets-signature"
	// HeaderContinuation names the endpoints at which the sidecar may continue a stream after the
	// death of its engine.
	HeaderContinuation          = "x-grapevine-continuation-hosts-ports"
	HeaderContinuationSignature = "x-grapevine-continuation-signature"
	// HeaderKVTransfer is a response header with the sidecar's report (package kvtransfer).
	HeaderKVTransfer = "x-grapevine-kv-transfer"
	// HeaderFaults is a response header that lists failed prefill legs with causes. The picker
	// removes it.
	HeaderFaults = "x-grapevine-prefill-faults"
	// HeaderHop is the signed token of a request from another cluster of the federation. It passes
	// the gateway like client headers do. Proxies leave it to the picker, which verifies it.
	HeaderHop = "x-grapevine-hop"
	// HeaderDecision identifies the decision in answers to clients, if the operator wants it: the
	// replica's member ID, a dot and the decision's number.
	HeaderDecision = "x-grapevine-decision"
)

// preferAvailable is the value of HeaderPrefer that restricts a request to endpoints holding its
// prompt.
const preferAvailable = "if-available"

// MetadataImport is the initial ext_proc metadata in which a route names the import of its
// requests: namespace/name.
const MetadataImport = "x-grapevine-import"

// MetadataRetries is the initial ext_proc metadata in which a proxy allows pickers to control
// retries through Envoy's headers.
const MetadataRetries = "x-grapevine-retries"

// MetadataWaited is the initial ext_proc metadata with the time since a proxy received the request,
// in milliseconds. A request that lost its replica keeps its turn in the queue by it.
const MetadataWaited = "x-grapevine-waited-ms"

// MetadataMoves is the initial ext_proc metadata in which a proxy says that it asks another replica
// about a waiting request whose stream fails.
const MetadataMoves = "x-grapevine-moves"

// MetadataQuiet is the initial ext_proc metadata of a filter that sends responses only if a mode override
// requests that. The filter sends requests that got no answer from the filter before. An answer that the
// earlier filter's picker gave is not its response.
const MetadataQuiet = "x-grapevine-quiet"

// MetadataDestinations is the initial ext_proc metadata with the number of addresses that a proxy
// accepts in one response.
const MetadataDestinations = "x-grapevine-destinations"

// RoutingHeaders returns the request headers that pickers use towards proxies, sidecars and
// engines. Only the picker may set them, because a sidecar connects to the addresses in them.
// Values sent by clients never count.
func RoutingHeaders() []string {
	return []string{
		HeaderDestination, HeaderServed, HeaderSubset, HeaderFallback, HeaderScores,
		HeaderPrefiller, HeaderEncoders, HeaderDataParallel, HeaderKVSource, HeaderConformance, HeaderSignature, HeaderHop,
		HeaderContinuation, HeaderContinuationSignature,
	}
}

// readHeaders fills the fields that are read from headers.
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
	r.QueueTTL = queueTTL(r.Headers)
	r.SLOTTFT = milliseconds(header(r.Headers, HeaderSLOTTFT, HeaderSLOTTFTAlt))
	r.Clusters = header(r.Headers, HeaderClusters, HeaderClusters)
	r.IfAvailable = strings.Contains(r.Headers.Get(HeaderPrefer), preferAvailable)
	r.SLOTPOT = milliseconds(header(r.Headers, HeaderSLOTPOT, HeaderSLOTPOTAlt))
}

// header returns the value of the newer spelling, or of the older one. Overlong values count as
// absent.
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

// product returns the first product name of a User-Agent, without its version.
func product(agent string) string {
	name, _, _ := strings.Cut(agent, "/")
	name, _, _ = strings.Cut(name, " ")
	if len(name) > maxProduct {
		return ""
	}
	return name
}

// milliseconds parses a positive number of milliseconds; 0 if invalid.
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

// queueTTL returns the maximum queue time that the client asks for, 0 if there is none.
func queueTTL(h Headers) time.Duration {
	if ttl := milliseconds(h.Get(HeaderQueueTTL)); ttl > 0 {
		return ttl
	}
	text := h.Get(HeaderQueueTTLAlt)
	if text == "" || len(text) > maxHeaderValueLength {
		return 0
	}
	ttl, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return min(max(ttl, 0), maxSLO)
}

// HeaderSet is one header to set on the upstream request or on its response.
type HeaderSet struct{ Name, Value string }
