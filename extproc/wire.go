package extproc

import "github.com/grapevine-epp/grapevine/picker/request"

// Header names as they stand on the wire, lower case.
const (
	headerMethod          = ":method"
	headerPath            = ":path"
	headerStatus          = ":status"
	headerUpgrade         = "upgrade"
	headerContentType     = "content-type"
	headerRetryAfter      = "retry-after"
	headerContentLength   = "content-length"
	headerContentEncoding = "content-encoding"
	headerAcceptEncoding  = "accept-encoding"
	headerRequestID       = "x-request-id"
	headerUpstreamTime    = "x-envoy-upstream-service-time"
	headerAttempts        = "x-envoy-attempt-count"
	headerDestination     = request.HeaderDestination
	headerDropReason      = "x-llm-d-request-dropped-reason"
	headerConformance     = request.HeaderConformance
)

// Metadata namespaces and keys of the endpoint picker protocol.
const (
	namespaceLB     = "envoy.lb"
	namespaceSubset = "envoy.lb.subset_hint"
	keySubset       = request.HeaderSubset
	keyDestination  = headerDestination
	keyFallback     = request.HeaderFallback
	keyServed       = request.HeaderServed
	attributesKey   = "envoy.filters.http.ext_proc"
	attributeServed = "upstream.address"
	contentTypeJSON = "application/json"
)

// Services that the health server knows by name. The empty name is the whole
// server and answers like ServiceReadiness.
const (
	ServiceLiveness  = "liveness"
	ServiceReadiness = "readiness"
	ServiceExtProc   = "envoy.service.ext_proc.v3.ExternalProcessor"
)

// Values of the drop-reason header.
const (
	dropSaturated     = "rejected-saturated"
	dropNoEndpoints   = "rejected-no-endpoints"
	dropNotHeld       = "rejected-not-held"
	dropTTLExpired    = "rejected-ttl-expired"
	dropCancelled     = "rejected-context-cancelled"
	dropOverloaded    = "rejected-overloaded"
	dropShuttingDown  = "rejected-shutting-down"
	dropBadRequest    = "rejected-bad-request"
	dropTooLarge      = "rejected-too-large"
	dropModelNotFound = "rejected-model-not-found"
	dropInternal      = "rejected-internal-error"
)

// maxChunk is the largest body chunk sent back in full duplex; the ext_proc
// protocol recommends at most 64 KiB.
const maxChunk = 64 << 10
