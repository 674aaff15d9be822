package block

// Key is Grapevine's own chained 64-bit hash of a prefix block: a keyed
// hash of the parent's key and the bytes that the block covers. Two replicas
// with the same seed compute equal keys. It is never compared with an
// EngineHash.
type Key uint64

// EngineHash is an engine's hash of a block in its event stream, normalized to 64 bits. It is
// meaningful only together with the Source that published it.
type EngineHash uint64

// EndpointID is a small dense integer naming one endpoint (one ip:port) in
// this process. Identifiers are reused after Remove; they never leave the
// process.
type EndpointID uint32

// Source names one event stream: one data-parallel rank of one endpoint.
type Source struct {
	Endpoint EndpointID
	Rank     uint16
}

// Tier is the storage class that holds a block, best first.
type Tier uint8

// Tiers, in order of falling match weight.
const (
	TierGPU Tier = iota
	TierCPU
	TierDisk
	TierRemote
	NumTiers
)

// String returns the tier's name as it appears in metrics and in explain.
func (t Tier) String() string {
	switch t {
	case TierGPU:
		return "gpu"
	case TierCPU:
		return "cpu"
	case TierDisk:
		return "disk"
	default:
		return "remote"
	}
}

// Space is the meaning of a chain's bytes. Chains of different spaces never share a key.
type Space uint8

// Spaces of block keys.
const (
	SpaceText   Space = iota // the bytes that the engine's token ids decode to
	SpaceTokens              // token ids, four little-endian bytes each
	SpaceChunks              // fixed-size chunks of raw prompt bytes (approximate index)
)

// Scope is the common data that two chains need, in addition to equal bytes, to share blocks. It is
// hashed into the root key.
type Scope struct {
	Space   Space
	Model   string // base model name
	Adapter string // LoRA adapter name, empty for none
	Salt    string // cache_salt, empty for none
}

// Query is one prompt to be matched. Bytes are in the space of the Scope
// that made Root: text, token ids at four bytes each, or raw chunks. Match
// does not retain it.
type Query struct {
	Root  Key
	Bytes []byte
	// Tokens is the end of each token of the prompt in Bytes, if the request contains token ids;
	// nil: the vocabulary's tokenization.
	Tokens []int32
}

// Run is the leading part of a prompt that an endpoint holds. Tokens counts
// tokens by the tier that holds them best; Bytes is the length of the prompt
// covered; Blocks the number of blocks.
type Run struct {
	Blocks int32
	Bytes  int32
	Tokens [NumTiers]int32
	// Missing is the expected difference in tokens between this run, of the best rank, and the run
	// of any rank, since ranks cannot be chosen. Worst is the difference to the worst rank.
	Missing, Worst int32
	Cut            bool // it ended before a block that is not the canonical tokenization of its text
	Ruled          bool // some cache groups have rules: a shorter run requires another query
}

// Total returns the tokens of the run over all tiers.
func (r *Run) Total() int32 {
	var n int32
	for t := range r.Tokens { // without a copy, which would wait for the writes of single tiers
		n += r.Tokens[t]
	}
	return n
}

// Better reports whether r covers more than o, or the same in better tiers.
func (r *Run) Better(o *Run) bool {
	if r.Bytes != o.Bytes {
		return r.Bytes > o.Bytes
	}
	for t := range r.Tokens {
		if r.Tokens[t] != o.Tokens[t] {
			return r.Tokens[t] > o.Tokens[t]
		}
	}
	return false
}
