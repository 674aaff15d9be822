package tracing

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
)

// SpanInfo documents a span.
type SpanInfo struct {
	Name       string
	Kind       string // of OpenTelemetry's span kinds
	Parent     string // "" : the client's or proxy's span, if the request names one
	Meaning    string
	Attributes []attribute.Key
	Events     []EventInfo
}

// EventInfo documents an event of a span.
type EventInfo struct {
	Name, Meaning string
	Attributes    []attribute.Key
}

// remote is the parent of spans that begin in this process.
const remote = "the client's, proxy's or picker's span"

// Spans documents all spans. Tests compare it with received spans and with the documentation.
var Spans = []SpanInfo{
	{
		SpanRequest, "server", remote, "a request at the picker, from its headers to the end of its answer",
		[]attribute.Key{
			RequestID, URLPath, Operation, Model, Target, MaxTokens, Stream, Priority, Server, ServerPort, Attempts, Status, ErrorType,
			InputTokens, OutputTokens, CachedTokens,
		},
		[]EventInfo{firstToken},
	},
	{SpanParse, "internal", SpanRequest, "parsing of the body, with the wait for a processor if the body is large", []attribute.Key{Bytes}, nil},
	{
		SpanDecision, "internal", SpanRequest, "the decision, with the wait for capacity", []attribute.Key{Decision, Candidates, ErrorType},
		[]EventInfo{{EventChoice, "the arithmetic of the choice", append(append(candidate(Chosen), candidate(Second)...), Margin)}},
	},
	{SpanQueue, "internal", SpanDecision, "the wait for capacity in the flow control queue", nil, nil},
	{SpanRender, "internal", SpanDecision, "rendering of the prompt as the engine will see it, and its block keys", []attribute.Key{PromptSpace, PromptBytes, Prompt}, nil},
	{SpanProfile, "internal", SpanDecision, "one profile: filters, scorers, picker", []attribute.Key{Profile, Kept}, nil},
	{SpanFilter, "internal", SpanProfile, "one filter", []attribute.Key{Plugin, Kept}, nil},
	{SpanScorer, "internal", SpanProfile, "one scorer", []attribute.Key{Plugin}, nil},
	{SpanPicker, "internal", SpanProfile, "the picker of the profile", nil, nil},
	{SpanMatch, "internal", "the first step that needs it", "the lookup of the prompt's prefix in the caches of all candidates, once per decision", nil, nil},
	{
		SpanSidecar, "server", remote, "a request at the sidecar of a decode engine",
		[]attribute.Key{RequestID, URLPath, Split, PrefillFailures, Status, ErrorType}, nil,
	},
	{SpanEncode, "client", SpanSidecar, "the encoding of one image or audio item", []attribute.Key{Server, ServerPort, Status, ErrorType}, nil},
	{SpanPrefill, "client", SpanSidecar, "a prefill leg", []attribute.Key{Server, ServerPort, Status, Outcome, ErrorType}, nil},
	{SpanDecode, "client", SpanSidecar, "a decode leg, to the end of the answer", []attribute.Key{Server, ServerPort, Status, ErrorType}, []EventInfo{firstToken}},
}

var firstToken = EventInfo{EventFirstToken, "the first token of a streamed answer passes", nil}

// suffixes are the suffixes of a candidate's attributes.
var suffixes = []string{OfEndpoint, OfTotal, OfScores, OfMatched, OfTTFT, OfWait, OfOwn, OfBase, OfFetch, OfLoad, OfOthers}

func candidate(c Candidate) (keys []attribute.Key) {
	for _, s := range suffixes {
		keys = append(keys, c.Key(s))
	}
	return keys
}

// Meanings documents the attributes. Those of Candidate have their suffix.
var Meanings = map[attribute.Key]string{
	Operation:    "`chat`, `text_completion` or `embeddings`; absent for other requests",
	Model:        "model as sent by the client",
	MaxTokens:    "limit of the answer, if set",
	InputTokens:  "prompt tokens that the engine reported, of answers that the picker reads (`--sample-bodies`)",
	OutputTokens: "output tokens that the engine reported, of the same answers",
	CachedTokens: "prompt tokens that the engine had cached, of the same answers",
	ErrorType:    "reason of a refusal, status of a failed answer, `cancelled`, or cause of a failed leg",
	Status:       "status of the answer",
	Server:       "address of the engine that served, or of a leg's engine",
	ServerPort:   "port of that engine",
	URLPath:      "path without the query",

	RequestID:       "`x-request-id`, as in `explain --request-id`",
	Stream:          "whether the answer is streamed",
	Target:          "model as sent to the engine, if it was rewritten",
	Priority:        "priority of the request's objective",
	Bytes:           "size of the body",
	PromptSpace:     "`text` for exact matching, `chunks` for approximate matching, or `none`",
	PromptBytes:     "size of the rendered prompt",
	Prompt:          "prompt tokens, estimated unless the prompt was rendered",
	Decision:        "number of the decision at this replica",
	Candidates:      "endpoints that could be chosen",
	Kept:            "candidates that are left after this step",
	Profile:         "name of the profile",
	Plugin:          "name of the plugin in the configuration",
	Attempts:        "tries of the proxy, if it reports them",
	Split:           "whether another engine computed the prompt",
	Outcome:         "result of the leg, as in `grapevine_sidecar_prefills_total`",
	PrefillFailures: "prefill legs that failed before the one that succeeded",
	Margin:          "total of the chosen endpoint minus the total of the second best",

	OfEndpoint: "address",
	OfTotal:    "weighted sum of the scores, by which the profile ranks",
	OfScores:   "list of `scorer=score*weight`",
	OfMatched:  "prompt tokens in its cache",
	OfTTFT:     "predicted time to first token: the sum of the next five",
	OfWait:     "wait for work that is ahead in the engine",
	OfOwn:      "prefill of the tokens that are not cached",
	OfBase:     "fixed part",
	OfFetch:    "transfer of blocks from another holder",
	OfLoad:     "loading of an adapter or of offloaded blocks",
	OfOthers:   "delay of other requests, which is a cost but no part of the time to first token",
}

// Declared reports whether the table has the span, with this attribute if key is not "". Event is ""
// for attributes of the span itself.
func Declared(span, event string, key attribute.Key) bool {
	i := slices.IndexFunc(Spans, func(s SpanInfo) bool { return s.Name == span })
	if i < 0 {
		return false
	}
	keys := Spans[i].Attributes
	if event != "" {
		k := slices.IndexFunc(Spans[i].Events, func(e EventInfo) bool { return e.Name == event })
		if k < 0 {
			return false
		}
		keys = Spans[i].Events[k].Attributes
	}
	return key == "" || slices.Contains(keys, key)
}
