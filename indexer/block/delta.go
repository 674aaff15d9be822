package block

// OpKind is the type of a Delta's operation.
type OpKind uint8

// Kinds of operation.
const (
	OpStore  OpKind = iota // Blocks[First:First+N] are stored, chained below Parent
	OpRemove               // Hashes[First:First+N] are removed
	OpClear                // all blocks of the source are removed
	OpMove                 // Hashes[First:First+N], already known, are also held in Tier (offload placeholders)
)

// Op is one operation of a Delta. Order matters: a removal and a store of the
// same hash can share a batch.
type Op struct {
	Kind  OpKind
	Tier  Tier
	Group uint8  // the engine's KV-cache group, counted separately
	Root  bool   // OpStore: Parent is a root key, not a block's
	N     uint32 // number of blocks or hashes
	First uint32 // index of the first one
	From  Key    // OpStore: key of the parent block, or the root key
	// Parent is the engine's name of the parent block; unused when Root.
	Parent EngineHash
}

// StoredBlock is one block of an OpStore.
type StoredBlock struct {
	Hash   EngineHash
	Key    Key
	Bytes  uint32 // length of the block in the chain's space
	Tokens uint32 // tokens it covers
	Flags  Flags
}

// Flags are properties of a stored block.
type Flags uint8

// Block flags.
const (
	// FlagNonCanonical marks a block whose tokens differ from the engine's tokenization of the same
	// text. It ends the walk of a text query, but keeps its position in the chain.
	FlagNonCanonical Flags = 1 << iota
	// FlagAgain marks a block that the engine announces in a requested report. It is added if
	// unknown; otherwise it is not an additional copy.
	FlagAgain
)

// Delta is an ordered list of operations on the blocks of one source, with all keys computed. It
// transfers changes from a reader of an engine's stream into an Index, locally and at every peer:
// the same deltas in the same order give the same state. A Delta is reused; Reset keeps its memory.
type Delta struct {
	Ops    []Op
	Blocks []StoredBlock
	Hashes []EngineHash
}

// Reset empties d and keeps its memory.
func (d *Delta) Reset() {
	d.Ops, d.Blocks, d.Hashes = d.Ops[:0], d.Blocks[:0], d.Hashes[:0]
}
