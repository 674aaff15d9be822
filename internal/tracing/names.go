package tracing

import "go.opentelemetry.io/otel/attribute"

// Names of spans.
const (
	SpanRequest  = "grapevine.request"
	SpanParse    = "grapevine.parse"
	SpanDecision = "grapevine.decision"
	SpanQueue    = "grapevine.queue"
	SpanRender   = "grapevine.render"
	SpanMatch    = "grapevine.match"
	SpanProfile  = "grapevine.profile"
	SpanFilter   = "grapevine.filter"
	SpanScorer   = "grapevine.scorer"
	SpanPicker   = "grapevine.picker"
	SpanSidecar  = "grapevine.sidecar"
	SpanEncode   = "grapevine.encode"
	SpanPrefill  = "grapevine.prefill"
	SpanDecode   = "grapevine.decode"
)

// Names of events.
const (
	EventChoice     = "grapevine.choice"
	EventFirstToken = "grapevine.first_token"
)

// Attributes of OpenTelemetry's semantic conventions.
const (
	Operation    attribute.Key = "gen_ai.operation.name"
	Model        attribute.Key = "gen_ai.request.model"
	MaxTokens    attribute.Key = "gen_ai.request.max_tokens"
	InputTokens  attribute.Key = "gen_ai.usage.input_tokens"
	OutputTokens attribute.Key = "gen_ai.usage.output_tokens"
	CachedTokens attribute.Key = "gen_ai.usage.cache_read.input_tokens"
	ErrorType    attribute.Key = "error.type"
	Status       attribute.Key = "http.response.status_code"
	Server       attribute.Key = "server.address"
	ServerPort   attribute.Key = "server.port"
	URLPath      attribute.Key = "url.path"
)

// Attributes of Grapevine.
const (
	RequestID       attribute.Key = "grapevine.request.id"
	Stream          attribute.Key = "grapevine.request.stream"
	Target          attribute.Key = "grapevine.request.target"
	Priority        attribute.Key = "grapevine.request.priority"
	Bytes           attribute.Key = "grapevine.body.bytes"
	PromptSpace     attribute.Key = "grapevine.prompt.space"
	PromptBytes     attribute.Key = "grapevine.prompt.bytes"
	Prompt          attribute.Key = "grapevine.prompt.tokens"
	Decision        attribute.Key = "grapevine.decision.number"
	Candidates      attribute.Key = "grapevine.candidates"
	Kept            attribute.Key = "grapevine.candidates.kept"
	Profile         attribute.Key = "grapevine.profile"
	Plugin          attribute.Key = "grapevine.plugin"
	Attempts        attribute.Key = "grapevine.attempts"
	Split           attribute.Key = "grapevine.split"
	Outcome         attribute.Key = "grapevine.prefill.outcome"
	PrefillFailures attribute.Key = "grapevine.prefill.failures"

	Chosen Candidate = "grapevine.chosen"
	Second Candidate = "grapevine.second"
	Margin           = attribute.Key("grapevine.margin")
)

// Candidate is the prefix of the attributes of a candidate in EventChoice.
type Candidate string

// Key returns the attribute with that suffix.
func (c Candidate) Key(suffix string) attribute.Key { return attribute.Key(string(c) + "." + suffix) }

// Suffixes of the attributes of a candidate. Times are in milliseconds.
const (
	OfEndpoint = "endpoint"
	OfTotal    = "total"
	OfScores   = "scores"
	OfMatched  = "matched_tokens"
	OfTTFT     = "ttft_ms"
	OfWait     = "wait_ms"
	OfOwn      = "own_ms"
	OfBase     = "base_ms"
	OfFetch    = "fetch_ms"
	OfLoad     = "load_ms"
	OfOthers   = "others_ms"
)
