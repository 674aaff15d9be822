package decode

import (
	"errors"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// EventKind is the type of an engine's event.
type EventKind uint8

// Kinds of event. Others are skipped by Decode.
const (
	BlockStored EventKind = iota + 1
	BlockRemoved
	AllBlocksCleared
)

// Event is one decoded event. Its slices belong to the Batch and to the decoded payload, and are
// valid while both are. A nil slice means that the field was absent or nil.
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
	Lookahead []uint32 // tokens after each block that its hash covers too, the same number for each
	Locality  []byte
	Ownership []byte
}

// NoGroup is the Group of an event without one.
const NoGroup = -1

// ExtraKind is the form of one extra key.
type ExtraKind uint8

// Forms of extra keys. The meaning of a string depends on its position.
const (
	ExtraString ExtraKind = iota // LoRA name, cache salt or media identifier
	ExtraPair                    // media identifier and its offset in the block
	ExtraBytes                   // digest of prompt embeddings
	ExtraOther                   // any other key; Value is its encoding
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
	Malformed int    // malformed events, skipped
	Unknown   int    // events of unknown kinds
	Text      []byte // scratch memory of the translator

	hashes []block.EngineHash
	tokens []uint32
	ahead  []uint32
	extra  []ExtraKey

	at     places   // of the current event
	shapes [2]shape // of the latest store and the latest removal
}

// NoRank is the Rank of a batch without one.
const NoRank = -1

// Errors of Decode.
var (
	ErrMalformed = errors.New("events: malformed batch")
	ErrTooLarge  = errors.New("events: batch over a limit")
)

// Limits of one batch. Announced lengths are also bounded by the available bytes.
const (
	maxEvents = 1 << 16
	maxHashes = 1 << 20
	maxTokens = 1 << 22
	maxExtra  = 1 << 16
)

// keepItems is the maximum number of items per kind for which scratch memory is kept.
const keepItems = 1 << 14

func (b *Batch) reset() {
	b.Time, b.Rank, b.Malformed, b.Unknown = 0, NoRank, 0, 0
	b.Events = keep(b.Events)
	b.hashes, b.tokens, b.ahead, b.extra = keep(b.hashes), keep(b.tokens), keep(b.ahead), keep(b.extra)
	b.shapes = [2]shape{}
}

// keep empties s, and releases memory that one large batch needed.
func keep[T any](s []T) []T {
	if cap(s) > keepItems {
		return nil
	}
	return s[:0]
}
