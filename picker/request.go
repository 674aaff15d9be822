package picker

import (
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
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

// Request is one inference request as the picker sees it. It is filled once,
// before the decision, and read-only from then on. Byte slices alias the body
// and are valid until the stream ends.
type Request struct {
	ID      string // x-request-id, or one that we made
	Path    string // :path without query
	Headers Headers
	Kind    Kind
	Body    []byte

	Model      string // as the client wrote it
	ModelSpan  [2]int // where the model's JSON string literal stands in Body, quotes included; {0,0} when absent
	Target     string // model after rewrites; what the engine will see
	Adapter    string // LoRA adapter, when Model names one
	CacheSalt  string
	Session    string // session key, empty when none
	Objective  string
	FairnessID string
	Priority   int

	Stream       bool
	IncludeUsage bool // stream_options.include_usage
	MaxTokens    int  // 0 when unset

	// Prompt, filled by the prompt producer.
	Exact       []indexer.Query // precise spaces to be matched, usually one; empty when the prompt could not be rendered
	Chunks      indexer.Query   // approximate space
	InputTokens int             // exact for token ids, else estimated from bytes

	SLOTTFT time.Duration // x-slo-ttft-ms, 0 when absent
	SLOTPOT time.Duration // x-slo-tpot-ms, 0 when absent

	// Subset the proxy allows. HasSubset with an empty Subset admits nobody.
	Subset    []string // ip:port
	HasSubset bool
}

// Headers gives the request's header values by lower-case name. Get returns
// "" for an absent header.
type Headers interface {
	Get(name string) string
}
