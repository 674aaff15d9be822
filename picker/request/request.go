package request

import (
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/tracing"
)

// Kind is the format of a request's body. It determines how the prompt is read.
type Kind uint8

// Request kinds. KindOther is passed through and routed by load alone.
const (
	KindOther Kind = iota
	KindCompletions
	KindChat
	KindResponses
	KindMessages
	KindEmbeddings
	KindGenerate
)

// Form is the JSON form of the prompt.
type Form uint8

// Prompt forms.
const (
	FormNone     Form = iota // no prompt found
	FormText                 // one string
	FormTexts                // a list of strings
	FormTokens               // a list of token ids
	FormBatches              // a list of lists of token ids
	FormMessages             // a list of objects: chat messages, response items
)

// Span is a range of the body, [start, end). {0, 0} means absent.
type Span [2]int

// Of returns the bytes of the span in body.
func (s Span) Of(body []byte) []byte { return body[s[0]:s[1]] }

// Within reports whether the span is present and inside body.
func (s Span) Within(body []byte) bool { return s[0] >= 0 && s.Found() && s[1] <= len(body) }

// Found reports whether the span is present.
func (s Span) Found() bool { return s[1] > s[0] }

// PromptSpans are the positions of the prompt's parts in the body: the raw JSON values, including
// quotes and brackets. The last of duplicate keys counts.
type PromptSpans struct {
	Form   Form
	Main   Span // prompt, messages, input, token_ids, input_ids or text
	System Span // system (Messages), instructions (Responses)
	Tools  Span // tools
	Media  int  // images, audio and other long base64 strings in Main
}

// Request is one parsed inference request. It is filled once, before the decision, and read-only
// afterwards. Byte slices alias the body and are valid until Drop.
type Request struct {
	ID      string // x-request-id, or a generated one
	Path    string // :path without query
	Query   string // the query of :path
	Headers Headers
	Kind    Kind
	Body    []byte

	Model      string // as sent by the client
	ModelSpan  [2]int // position of the model's JSON string literal in Body, including quotes; {0,0} if absent
	Target     string // model after rewrites, as sent to the engine
	Fixed      bool   // the body's model cannot be rewritten
	NoModel    bool   // the whole body was read and names no model
	Adapter    string // LoRA adapter, if Model names one
	CacheSalt  string
	Session    string // session key, empty if none
	Tenant     string // namespace of Session, "" if unknown
	User       string // end user named in the body, or empty
	Client     string // client program from the User-Agent, without version
	Objective  string
	FairnessID string
	Priority   int

	Import   string // namespace/name of the import named by its route, "" for none
	Clusters string // comma-separated clusters that the request allows, "" for all

	Unnamed     bool // the client's identity claims are ignored
	Capped      bool // the priority is limited to MaxPriority
	MaxPriority int

	Background bool // it continues after the client disconnects

	Previous string // id of the stored response to continue, read or cancel; "" for none

	Stream       bool
	IncludeUsage bool // stream_options.include_usage
	MaxTokens    int  // 0 when unset

	Prompt     PromptSpans // positions of the prompt in Body
	Urgency    Span        // position of the body's own priority value
	Members    int         // number of members of the body's object
	KVTransfer bool        // the body may contain a member that only proxies may set
	// Whole means that the request cannot be split between engines: it asks for several answers,
	// for prompt log-probabilities, for one token, or for state that one engine keeps.
	Whole       bool
	Constrained bool // the answer must have a form that the body gives, for example a JSON schema
	// Reports means that the body asks the engine to report cached tokens.
	Reports bool
	// Copyable means that Body is complete and the request is sent to the chosen endpoint, so that
	// its prompt may also be sent to other endpoints.
	Copyable bool
	// IfAvailable restricts the request to endpoints that hold its prompt (header prefer:
	// if-available).
	IfAvailable bool

	// Inputs of prefix matching. Parse fills Chunks.Bytes and InputTokens, the prompt producer the
	// rest.
	Variants    []Variant     // renderings for engine profiles that differ from Exact
	Exact       []block.Query // precise spaces to match, usually one; empty if the prompt was not rendered
	Chunks      block.Query   // approximate space
	ChunkKeys   []block.Key   // chain of Chunks, by the prompt producer
	PromptBytes int           // length of the rendered prompt, 0 if not rendered
	InputTokens int           // exact for token ids, otherwise estimated from bytes

	SLOTTFT time.Duration // x-slo-ttft-ms, 0 when absent
	SLOTPOT time.Duration // x-slo-tpot-ms, 0 when absent

	QueueTTL time.Duration // x-grapevine-queue-ttl-ms: maximum queue time, 0 when absent
	MaxWait  time.Duration // the proxy's limit on the wait, 0: none
	// Waited is how long the request waited at its proxy and at replicas that failed before it came
	// here. It keeps its turn in the queue by it.
	Waited time.Duration
	// Moves means that the proxy asks another replica about the request if this one gives it up.
	Moves bool
	Waits func() // called when the request starts to wait for capacity; may be nil
	Evict func() // ends the running request without blocking, from any goroutine; nil if impossible

	// Trace is the span of the decision, nil unless the request is sampled for tracing.
	Trace *tracing.Span

	// Subset is the set of endpoints that the proxy allows. HasSubset with an empty Subset allows
	// none.
	Subset    []string // ip:port
	HasSubset bool

	dropped int // length of Chunks.Bytes before Drop
	reads   reads
}

// Variant is a prompt as rendered by engines of one profile. Exact is empty if unknown.
type Variant struct {
	Profile uint32 // a prompt.Profile
	Exact   []block.Query
}

// reads holds the body's settings that control use of the prefix cache.
type reads struct {
	promptLogprobs, echo, logprobs bool
	skip, skipSet                  bool // skip_reading_prefix_cache, and whether it is set
}

// SkipsCache reports whether engines compute the whole prompt regardless of their cache, because
// the request asks for prompt log-probabilities or disables the cache.
func (r *Request) SkipsCache() bool {
	switch v := &r.reads; {
	case v.skipSet:
		return v.skip
	case v.promptLogprobs:
		return true
	case r.Kind == KindChat:
		return v.echo
	default:
		return v.echo && v.logprobs
	}
}

// Drop releases the body and its aliases once the request has been dispatched, and shortens
// overlong names. ChunkBytes still returns the prompt's length.
func (r *Request) Drop() {
	r.dropped = r.ChunkBytes()
	r.Body, r.Chunks.Bytes, r.Exact, r.Variants = nil, nil, nil, nil
	for _, name := range [...]*string{&r.Model, &r.Target, &r.CacheSalt, &r.User} {
		*name = budget.ShortName(*name)
	}
}

// ChunkBytes returns the length of Chunks.Bytes, also after Drop.
func (r *Request) ChunkBytes() int { return max(len(r.Chunks.Bytes), r.dropped) }

// Headers provides header values by lower-case name. Get returns "" for an absent header.
type Headers interface {
	Get(name string) string
}
