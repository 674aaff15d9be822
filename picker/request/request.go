package request

import (
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/budget"
)

// Kind is the shape of a request's body, which decides how its prompt is read.
type Kind uint8

// Request kinds. KindOther passes through and is placed by load alone.
const (
	KindOther Kind = iota
	KindCompletions
	KindChat
	KindResponses
	KindMessages
	KindEmbeddings
	KindGenerate
)

// Form is how the prompt stands in the body.
type Form uint8

// Prompt forms.
const (
	FormNone     Form = iota // no prompt was found
	FormText                 // one string
	FormTexts                // a list of strings
	FormTokens               // a list of token ids
	FormBatches              // a list of lists of token ids
	FormMessages             // a list of objects: chat messages, response items
)

// Span is a part of the body, [start, end). {0, 0} means absent.
type Span [2]int

// Of returns the bytes of the span in body.
func (s Span) Of(body []byte) []byte { return body[s[0]:s[1]] }

// Within reports whether the span is there, and ends in body.
func (s Span) Within(body []byte) bool { return s[0] >= 0 && s.Found() && s[1] <= len(body) }

// Found reports whether the span is there.
func (s Span) Found() bool { return s[1] > s[0] }

// PromptSpans say where the parts of a prompt stand in the body: the raw JSON
// values, quotes and brackets included. Of duplicate keys the last one counts.
type PromptSpans struct {
	Form   Form
	Main   Span // prompt, messages, input, token_ids, input_ids or text
	System Span // system (Messages), instructions (Responses)
	Tools  Span // tools
	Media  int  // images, sounds and other long base64 strings in Main
}

// Request is one inference request as the picker sees it. It is filled once,
// before the decision, and read-only from then on. Byte slices alias the body
// and are valid until Drop.
type Request struct {
	ID      string // x-request-id, or one that we made
	Path    string // :path without query
	Query   string // the query of :path
	Headers Headers
	Kind    Kind
	Body    []byte

	Model      string // as the client wrote it
	ModelSpan  [2]int // where the model's JSON string literal stands in Body, quotes included; {0,0} when absent
	Target     string // model after rewrites; what the engine will see
	Fixed      bool   // the body's model cannot be rewritten
	NoModel    bool   // all of the body was read, and names none
	Adapter    string // LoRA adapter, when Model names one
	CacheSalt  string
	Session    string // session key, empty when none
	Tenant     string // in whose name Session is one, "" when nobody says
	User       string // end user as the body names it, empty when none
	Client     string // program of the client, as its User-Agent names it, without a version
	Objective  string
	FairnessID string
	Priority   int

	Import   string // namespace/name of the import that its route names, "" for none
	Clusters string // clusters in which it may be served, as the request says: a comma list, "" for all

	Unnamed     bool // what it says of who asks does not count
	Capped      bool // the priority may not be above MaxPriority
	MaxPriority int

	Background bool // it goes on by itself when the client has gone

	Previous string // id of the stored response that it goes on with, reads or cancels; "" when none

	Stream       bool
	IncludeUsage bool // stream_options.include_usage
	MaxTokens    int  // 0 when unset

	Prompt   PromptSpans // where the prompt stands in Body
	Urgency  Span        // where the body's own priority for engines stands in it, the value
	Members  int         // of the body's object
	Handover bool        // some member may be one that only proxies may set
	// Whole says that engines cannot serve the request in parts: it asks for several
	// answers, for the prompt's log-probabilities, for one token, or for what one
	// engine keeps to itself.
	Whole bool
	// Reports says that the body asks the engine to announce what it reuses.
	Reports bool
	// Copyable says that Body is all of the body, and of a request that goes where it is
	// placed: its prompt may be sent to other endpoints too.
	Copyable bool
	// IfAvailable says that the request is to be placed only where its prompt is
	// (header prefer: if-available).
	IfAvailable bool

	// What the prompt is matched by. Parse fills Chunks.Bytes and
	// InputTokens, the prompt producer the rest.
	Variants    []Variant     // prompts as engines of some profiles render them otherwise than Exact
	Exact       []block.Query // precise spaces to be matched, usually one; empty when the prompt could not be rendered
	Chunks      block.Query   // approximate space
	ChunkKeys   []block.Key   // chain of Chunks, by the prompt producer
	PromptBytes int           // length of the rendered prompt, 0 when it could not be rendered
	InputTokens int           // exact for token ids, else estimated from bytes

	SLOTTFT time.Duration // x-slo-ttft-ms, 0 when absent
	SLOTPOT time.Duration // x-slo-tpot-ms, 0 when absent

	QueueTTL time.Duration // x-grapevine-queue-ttl-ms: how long it may wait for capacity at most, 0 when absent
	MaxWait  time.Duration // as long as the proxy lets it wait, 0: as long as it likes
	Waits    func()        // is told that the request waits for capacity; nil: nobody is
	// Leaves is asked while the request waits for capacity, with the seconds for which it is
	// expected to go on; true: it has gone to another cluster. nil: it stays.
	Leaves func(wait float64) bool
	Evict  func() // ends the request while it is served and returns at once, nil where that cannot be done; any goroutine may call it

	// Subset the proxy allows. HasSubset with an empty Subset admits nobody.
	Subset    []string // ip:port
	HasSubset bool

	dropped int // length of Chunks.Bytes before Drop
	reads   reads
}

// Variant is a prompt as engines of one profile render it. Exact is empty where that is not
// known.
type Variant struct {
	Profile uint32 // a prompt.Profile
	Exact   []block.Query
}

// reads is what in a body makes engines look at their prefix cache or not.
type reads struct {
	promptLogprobs, echo, logprobs bool
	skip, told                     bool // skip_reading_prefix_cache, and that it is there
}

// SkipsCache reports whether engines compute the whole prompt of the request,
// whatever they hold of it: the prompt's log-probabilities are asked for, or the body
// says so.
func (r *Request) SkipsCache() bool {
	switch v := &r.reads; {
	case v.told:
		return v.skip
	case v.promptLogprobs:
		return true
	case r.Kind == KindChat:
		return v.echo
	default:
		return v.echo && v.logprobs
	}
}

// Drop lets go of the body and what lies in it, once the request is placed and
// the body is passed on, and cuts names that are too long to be kept. ChunkBytes
// still tells how long the prompt was.
func (r *Request) Drop() {
	r.dropped = r.ChunkBytes()
	r.Body, r.Chunks.Bytes, r.Exact, r.Variants = nil, nil, nil, nil
	for _, name := range [...]*string{&r.Model, &r.Target, &r.CacheSalt, &r.User} {
		*name = budget.ShortName(*name)
	}
}

// ChunkBytes returns the length of Chunks.Bytes, also after Drop.
func (r *Request) ChunkBytes() int { return max(len(r.Chunks.Bytes), r.dropped) }

// Headers gives the request's header values by lower-case name. Get returns
// "" for an absent header.
type Headers interface {
	Get(name string) string
}
