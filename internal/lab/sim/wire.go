package sim

// Names on the wire, verbatim.
const (
	headerRequestID = "X-Request-Id"
	headerRank      = "X-Data-Parallel-Rank"

	// HeaderEngine names the engine that answered.
	HeaderEngine = "X-Sim-Engine"
	// HeaderVerify requests checksums: HeaderRequestSum, and HeaderResponseSum for complete bodies.
	// A stream carries the latter in a comment line before its last event.
	HeaderVerify = "X-Sim-Verify"
	// HeaderRequestSum is the XXH64 of the request body as the engine read it, in 16
	// hexadecimal digits, but for askedReport.
	HeaderRequestSum = "X-Sim-Request-Sum"
	// HeaderResponseSum is the XXH64 of the response body.
	HeaderResponseSum = "X-Sim-Response-Sum"
	// StreamSumPrefix begins the comment line of a stream; the XXH64 of all bytes
	// before the line follows, in 16 hexadecimal digits.
	StreamSumPrefix = ": sum "

	sourcesList  = "list"
	sourcesKey   = "sources"
	sourcesRanks = "ranks"

	objectChat       = "chat.completion"
	objectChunk      = "chat.completion.chunk"
	objectCompletion = "text_completion"

	errBadRequest  = "BadRequestError"
	errNotFound    = "NotFoundError"
	errInternal    = "InternalServerError"
	errUnavailable = "ServiceUnavailableError"
	errTooLarge    = "RequestEntityTooLargeError"

	reportFull = "full" // value of vllm_xargs.kv_cache_report_mode
)

// LabelEngineType is the label of the engine's type in the endpoints file.
const LabelEngineType = "inference.networking.k8s.io/engine-type"

// askedReport is the field that a picker may add to a request's body.
var askedReport = []byte(`,"vllm_xargs":{"kv_cache_report_mode":"full"}`)
