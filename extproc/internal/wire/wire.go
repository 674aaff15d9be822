package wire

import "github.com/grapevine-epp/grapevine/picker/request"

// Header names, in lower case.
const (
	HeaderMethod          = ":method"
	HeaderPath            = ":path"
	HeaderStatus          = ":status"
	HeaderUpgrade         = "upgrade"
	HeaderContentType     = "content-type"
	headerRetryOn         = "x-envoy-retry-on"
	headerMaxRetries      = "x-envoy-max-retries"
	headerRetryCodes      = "x-envoy-retriable-status-codes"
	HeaderRetryAfter      = "retry-after"
	HeaderDate            = "date"
	HeaderContentLength   = "content-length"
	HeaderContentEncoding = "content-encoding"
	HeaderAcceptEncoding  = "accept-encoding"
	HeaderRequestID       = "x-request-id"
	HeaderUpstreamTime    = "x-envoy-upstream-service-time"
	HeaderAttempts        = "x-envoy-attempt-count"
	HeaderDestination     = request.HeaderDestination
	HeaderDropReason      = "x-llm-d-request-dropped-reason"
	HeaderConformance     = request.HeaderConformance
)

// Metadata namespaces and keys of the endpoint picker protocol.
const (
	NamespaceLB     = "envoy.lb"
	NamespaceSubset = "envoy.lb.subset_hint"
	KeySubset       = request.HeaderSubset
	keyDestination  = HeaderDestination
	keyFallback     = request.HeaderFallback
	KeyServed       = request.HeaderServed
	AttributesKey   = "envoy.filters.http.ext_proc"
	AttributeServed = "upstream.address"
	ContentTypeJSON = "application/json"
)

// Values of the drop-reason header.
const (
	DropSaturated     = "rejected-saturated"
	DropEvicted       = "evicted"
	DropNoEndpoints   = "rejected-no-endpoints"
	DropNotHeld       = "rejected-not-held"
	DropTTLExpired    = "rejected-ttl-expired"
	DropCancelled     = "rejected-context-cancelled"
	DropOverloaded    = "rejected-overloaded"
	DropShuttingDown  = "rejected-shutting-down"
	DropBadRequest    = "rejected-bad-request"
	DropForbidden     = "rejected-forbidden"
	DropTooLarge      = "rejected-too-large"
	DropModelNotFound = "rejected-model-not-found"
	DropInternal      = "rejected-internal-error"
)

// MaxChunk is the largest body chunk sent in full duplex; the ext_proc protocol recommends at most
// 64 KiB.
const MaxChunk = 64 << 10
