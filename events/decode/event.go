package decode

import (
	"errors"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// EventKind is what an engine's event says.
type EventKind uint8

// Kinds of event. Others are skipped by Decode.
const (
	BlockStored EventKind = iota + 1
	BlockRemoved
	AllBlocksCleared
)

// Event is one decoded event. Its slices belong to the Batch and to the
// payload that it was decoded from, and are valid as long as both. A nil
// slice is a field that was absent or nil.
type Event struct {
	Kind      EventKind
	HasParent bool
	HasLoraID bool
	Parent    block.EngineHash
	Hashes    []block.EngineHash
	Tokens    []uint32 // token ids; empty in placeholders of offload tiers
	BlockSize uint32   // tokens per block of this event; 0 in placeholders
	Group     int32    // KV-cache group, NoGroup when unknown
	LoraID    int64
	Extra     []ExtraKey // in the order of blocks
	Medium    []byte
	LoraName  []byte
	CacheSalt []byte // SGLang only; vLLM's salt is among Extra
	SpecKind  []byte
	Window    uint32   // tokens of a sliding window, 0 for none
	Lookahead []uint32 // tokens behind each block that its hash covers too, as many for each
	Locality  []byte
	Ownership []byte
}

// NoGroup is the Group of an event that names none.
const NoGroup = -1

// ExtraKind is the shape of one extra key.
type ExtraKind uint8

// Shapes of extra keys. What a string means depends on its place.
const (
	ExtraString ExtraKind = iota // LoRA name, cache salt or media identifier
	ExtraPair                    // media identifier and its offset in the block
	ExtraBytes                   // digest of prompt embeddings
	ExtraOther                   // anything else; Value is its encoding
)

// ExtraKey is one extra key of one block.
type ExtraKey struct {
	Block  uint32 // index into Event.Hashes
	Kind   ExtraKind
	Offset int64 // ExtraPair: start of the item minus start of the block
	Value  []byte
}

// Batch is a decoded event batch. The zero value is ready; Decode reuses its
// memory.
type Batch struct {
	Time      float64 // seconds since the epoch, by the engine's clock
	Rank      int32   // data-parallel rank, NoRank when not given
	Events    []Event
	Malformed int    // events that were skipped because they could not be read
	Unknown   int    // events of kinds that are not known
	Text      []byte // scratch memory of whoever translates the batch

	hashes []block.EngineHash
	tokens []uint32
	ahead  []uint32
	extra  []ExtraKey

	at     places   // in the event that is being read
	shapes [2]shape // the latest store and the latest removal
}

// NoRank is the Rank of a batch that names none.
const NoRank = -1

// Errors of Decode.
var (
	ErrMalformed = errors.New("events: malformed batch")
	ErrTooLarge  = errors.New("events: batch over a limit")
)

// Limits of one batch. Every number announced in a batch is also bounded by
// the bytes that are there.
const (
	maxEvents = 1 << 16
	maxHashes = 1 << 20
	maxTokens = 1 << 22
	maxExtra  = 1 << 16
)

// keepItems is how many items of each kind scratch memory keeps room for.
const keepItems = 1 << 14

func (b *Batch) reset() {
	b.Time, b.Rank, b.Malformed, b.Unknown = 0, NoRank, 0, 0
	b.Events = keep(b.Events)
	b.hashes, b.tokens, b.ahead, b.extra = keep(b.hashes), keep(b.tokens), keep(b.ahead), keep(b.extra)
	b.shapes = [2]shape{}
}

// keep empties s and lets go of memory that one large batch has needed.
func keep[T any](s []T) []T {
	if cap(s) > keepItems {
		return nil
	}
	return s[:0]
}
