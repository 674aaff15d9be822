package block

// OpKind is what one operation of a Delta does.
type OpKind uint8

// Kinds of operation.
const (
	OpStore  OpKind = iota // Blocks[First:First+N] are stored, chained below Parent
	OpRemove               // Hashes[First:First+N] are removed
	OpClear                // everything of the source is forgotten
	OpMove                 // Hashes[First:First+N], already known, are held in Tier too (offload placeholders)
)

// Op is one operation of a Delta. Order matters: a removal and a store of the
// same hash can share a batch.
type Op struct {
	Kind  OpKind
	Tier  Tier
	Group uint8  // the engine's KV-cache group, counted separately
	Root  bool   // OpStore: Parent is a root key, not a block's
	N     uint32 // number of blocks or hashes
	First uint32 // index of the first of them
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

// Flags are facts about a stored block.
type Flags uint8

// Block flags.
const (
	// FlagNonCanonical marks a block whose tokens are not those that the engine
	// would make of the same text: it ends the walk of a text query, and keeps
	// its place in the chain.
	FlagNonCanonical Flags = 1 << iota
	// FlagAgain marks a block that the engine announces because it was asked what it
	// holds: it is entered where it is not known, and is no further copy where it is.
	FlagAgain
)

// Delta is an ordered list of operations on the blocks of one source, with
// every key already computed. It is the form in which knowledge moves from a
// reader of an engine's stream into an Index, here and at every peer: applying
// the same deltas in the same order gives the same state. A Delta is reused;
// Reset keeps its memory.
type Delta struct {
	Ops    []Op
	Blocks []StoredBlock
	Hashes []EngineHash
}

// Reset empties d and keeps its memory.
func (d *Delta) Reset() {
	d.Ops, d.Blocks, d.Hashes = d.Ops[:0], d.Blocks[:0], d.Hashes[:0]
}
