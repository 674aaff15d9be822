package extproc

// Header names as they stand on the wire, lower case.
const (
	headerPath            = ":path"
	headerMethod          = ":method"
	headerStatus          = ":status"
	headerUpgrade         = "upgrade"
	headerContentType     = "content-type"
	headerContentLength   = "content-length"
	headerContentEncoding = "content-encoding"
	headerRequestID       = "x-request-id"
	headerDestination     = "x-gateway-destination-endpoint"
	headerDropReason      = "x-llm-d-request-dropped-reason"
	headerKVSource        = "x-kv-cache-source-host-port"
	headerConformance     = "x-conformance-test-served-endpoint"
)

// MetadataDestinations is the initial metadata of an ext_proc stream in which a
// proxy announces how many addresses it takes in one answer.
const MetadataDestinations = "x-grapevine-destinations"

// Metadata namespaces and keys of the endpoint picker protocol.
const (
	namespaceLB     = "envoy.lb"
	namespaceSubset = "envoy.lb.subset_hint"
	keySubset       = "x-gateway-destination-endpoint-subset"
	keyDestination  = headerDestination
	keyFallback     = "x-gateway-destination-endpoint-fallback"
	keyServed       = "x-gateway-destination-endpoint-served"
	keyScores       = "x-gateway-destination-endpoint-scores"
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
