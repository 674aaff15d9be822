package translate

import (
	"encoding/binary"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Vocabulary maps token ids to bytes.
type Vocabulary interface {
	// AppendTokens appends the bytes of ids to dst. It returns dst unchanged and false if an id is
	// unknown.
	AppendTokens(dst []byte, ids []uint32) ([]byte, bool)
}

// Index is the part of the prefix index needed to read a stream. Calls for one source are
// sequential; calls for different sources may be concurrent.
type Index interface {
	// Lookup returns the key of an announced block that the source still holds in some tier.
	Lookup(src block.Source, h block.EngineHash) (block.Key, bool)
	// Parents is Lookup for many hashes: it sets keys, of the same length, to 0 for unknown blocks.
	// blocks announces blocks that will be stored.
	Parents(src block.Source, parents, blocks []block.EngineHash, keys []block.Key)
	// Digest returns the number of entries of a source, and their hash.
	Digest(src block.Source) (count, xor uint64)
	// Apply applies a delta. It does not retain it.
	Apply(src block.Source, d *block.Delta) indexer.ApplyStats
}

// Canonical reports whether ids are the tokens that the engine's tokenizer produces for text after
// prev. prev is the known text before, at most a few dozen bytes. It is nil if unknown, and empty
// but not nil at the start of a prompt. It must not retain its arguments.
type Canonical func(prev []byte, ids []uint32, text []byte) bool

// Options configures a Translator.
type Options struct {
	Source block.Source
	Index  Index
	Hasher block.Hasher
	Model  string // base model name, the same for all endpoints that serve it

	// Vocabulary enables keys in text space; nil means token space.
	Vocabulary Vocabulary
	// Canonical checks blocks that may hold generated tokens; nil means that all are canonical. It
	// is used in text space only.
	Canonical Canonical
	// Medium is called with the engine's name of an image, audio or video in a block; may be nil.
	// It must not retain the name.
	Medium func(id []byte)
	// Adapter maps an engine's adapter name, or the decimal lora_id without a name, to the name
	// used in keys; nil uses names unchanged.
	Adapter func(name string) string
	// Unit is the number of tokens per unit of merged pages, at most 16; default 16.
	Unit int
	// SharedRemote accepts blocks with locality REMOTE, in storage shared by all endpoints.
	SharedRemote bool
	// ParkBlocks and ParkBytes bound fragments with unknown parents; defaults 8192 and 1 MiB.
	ParkBlocks, ParkBytes int
}

// Skip is a reason for ignoring an event.
type Skip uint8

// Reasons to skip an event.
const (
	SkipGroup      Skip = iota // cache group with unknown properties
	SkipMisaligned             // tokens and hashes do not line up
	SkipSelfParent             // a block that is its own parent
	SkipMedium                 // unknown storage medium
	SkipRemote                 // storage that is not shared
	SkipOwnership              // made by a secondary tier
	SkipLimit                  // exceeds a limit of this process
	SkipCollision              // a page hash that names two pages
	SkipPartial                // partial block entry
	NumSkips
)

var skipNames = [NumSkips]string{"group", "misaligned", "self_parent", "medium", "remote", "ownership", "limit", "collision", "partial"}

// String returns the reason as it appears in metrics.
func (s Skip) String() string { return skipNames[s] }

// Stats holds a Translator's counters.
type Stats struct {
	Stored, Removed, Moved uint64 // blocks, or merged units of pages
	Clears                 uint64
	Skipped                [NumSkips]uint64 // events
	Parked, Attached, Lost uint64           // blocks without a known parent: parked, attached later, dropped
	NonCanonical           uint64           // blocks
	Reports                uint64           // stores that were requested reports
	Answered               uint64           // requested reports that arrived
	Unrendered             uint64           // blocks with token ids missing from the vocabulary
	Narrow                 bool             // no cache group has full attention
}

// Translator turns the events of one source into index deltas: it maps engine hashes and token ids
// to block keys. Between batches it keeps cache groups, fragments without a known parent, and pages
// smaller than a unit. It is not safe for concurrent use.
type Translator struct {
	opt             Options
	space           block.Space
	groups          groups
	known           []block.EngineHash // scratch of the current event
	ids             []uint32           // scratch of a block
	park            parking
	pages           *pages
	judges          bool   // Canonical is used
	tails           *tails // created on first use
	roots           rootCache
	text            []byte             // scratch of the current batch
	parents, blocks []block.EngineHash // of the events prefetched
	keys            []block.Key        // of parents
	next            int                // next parent, an index of parents
	stats           Stats
	expected        []expected
	media           [][]byte // recently reported names, a ring
	nextMedium      int
	batches         uint64 // translated
	suspects        int    // blocks of pieces whose marks may be missing
	pieced          int    // pieces of all groups, and their positions in blocks

	out     *block.Delta // of the current Translate
	fresh   fresh        // names of its blocks
	cleared int          // blocks of out before its last OpClear
	wiped   bool         // out has an OpClear, so Index lags behind
}

// New returns a translator without history.
func New(opt Options) *Translator {
	if opt.Unit <= 0 || opt.Unit > maxUnit {
		opt.Unit = maxUnit
	}
	t := &Translator{opt: opt, space: block.SpaceTokens, groups: groups{base: -1}}
	t.park.maxBlocks, t.park.maxBytes = defaultInt(opt.ParkBlocks, 8192), defaultInt(opt.ParkBytes, 1<<20)
	if opt.Vocabulary != nil {
		t.space = block.SpaceText
		t.judges = opt.Canonical != nil
	}
	return t
}

// Paged reports whether the engine's blocks are smaller than a unit.
func (t *Translator) Paged() bool { return t.pages != nil }

// Pieced reports whether some cache group has smaller blocks than the full-attention group. Its
// index data then depends on all batches that the translator has read.
func (t *Translator) Pieced() bool { return t.pieced > 0 }

func defaultInt(v, otherwise int) int {
	if v > 0 {
		return v
	}
	return otherwise
}

// keepText is the maximum size of kept scratch memory for text.
const keepText = 1 << 20

// Stats returns the counters.
func (t *Translator) Stats() Stats { return t.stats }

// Translate appends the operations of a batch to d, in order. The caller must apply d to the index
// before the next batch.
func (t *Translator) Translate(b *decode.Batch, d *block.Delta) {
	t.out, t.cleared, t.wiped, t.text = d, len(d.Blocks), false, b.Text[:0]
	t.fresh.reset(t.cleared)
	if t.groups.base < 0 || t.groups.sparse {
		t.groups.choose(b.Events)
		t.stats.Narrow = t.groups.sparse
	}
	from, ruled := 0, false // index of the first event since the last clear, and whether any belong to groups with rules
	for i := range b.Events {
		e := &b.Events[i]
		if i%warmEvents == 0 {
			t.lookAhead(b.Events[i:min(len(b.Events), i+warmEvents)])
		}
		if e.Kind == decode.AllBlocksCleared {
			t.Clear(d)
			t.groups.choose(b.Events[i+1:])
			from, ruled = i+1, false
			continue
		}
		switch t.groups.of(e) {
		case roleBase:
			t.base(e)
		case roleRuled:
			ruled = true
		case roleUnknown:
			if tier, ok := t.admit(e); ok && len(e.Hashes) > 0 {
				t.list(block.OpRemove, tier, groupOf(e), e.Hashes)
			}
		case roleNone:
			t.stats.Skipped[SkipGroup]++
		}
		if e.Kind == decode.BlockStored && e.HasParent {
			t.next++
		}
	}
	if ruled || t.suspects > 0 {
		t.ruled(b.Events[from:])
	}
	t.settleExpected()
	if b.Text = t.text; cap(b.Text) > keepText {
		b.Text = nil
	}
	t.out, t.text = nil, nil
}

// Clear removes all data of the source, and appends the clear operation to d.
func (t *Translator) Clear(d *block.Delta) {
	t.park.clear()
	t.groups, t.pieced, t.suspects = groups{base: -1}, 0, 0 // another engine may send further events
	t.pages = nil
	t.stats.Clears++
	d.Ops = append(d.Ops, block.Op{Kind: block.OpClear})
	t.cleared, t.wiped = len(d.Blocks), true
	t.fresh.reset(t.cleared)
}

// base handles an event of the base group.
func (t *Translator) base(e *decode.Event) {
	if e.Kind == decode.BlockStored {
		if t.groups.grown {
			t.outgrown()
		}
		t.stored(e)
	} else {
		t.removed(e)
	}
}

// stored handles one BlockStored.
func (t *Translator) stored(e *decode.Event) {
	tier, ok := t.admit(e)
	if !ok || len(e.Hashes) == 0 {
		return
	}
	if len(e.Tokens) == 0 {
		t.move(e, tier)
		return
	}
	if uint64(len(e.Tokens)) != uint64(len(e.Hashes))*uint64(e.BlockSize) {
		t.stats.Skipped[SkipMisaligned]++
		return
	}
	if n := len(e.Lookahead); n > 0 && (n >= len(e.Tokens) || n%len(e.Hashes) != 0) {
		t.stats.Skipped[SkipMisaligned]++
		return
	}
	if selfParent(e) {
		t.stats.Skipped[SkipSelfParent]++
		return
	}
	if !t.place(e, tier) {
		t.setAside(e, tier)
		return
	}
	t.attach(e.Hashes)
}

func selfParent(e *decode.Event) bool {
	if e.HasParent && e.Parent == e.Hashes[0] {
		return true
	}
	for i := 1; i < len(e.Hashes); i++ {
		if e.Hashes[i] == e.Hashes[i-1] {
			return true
		}
	}
	return false
}

// place stores an event below its parent. It returns false if the parent is unknown.
func (t *Translator) place(e *decode.Event, tier block.Tier) bool {
	if e.BlockSize < t.groups.size {
		t.stats.Skipped[SkipPartial]++
		return true
	}
	if k := t.opt.Unit / int(e.BlockSize); k > 1 {
		return t.placePages(e, tier, k)
	}
	from, root, ok := t.parent(e)
	if !ok {
		return false
	}
	t.store(e, tier, from, root)
	t.groups.early(e)
	return true
}

// parent returns the parent key of an event. An unannounced parent of 0 means none: one publisher
// encodes it so.
func (t *Translator) parent(e *decode.Event) (from block.Key, root, ok bool) {
	if e.HasParent {
		if key, ok := t.lookup(e.Parent); ok {
			return key, false, true
		}
		if e.Parent != 0 {
			return 0, false, false
		}
	}
	return t.root(e), true, true
}

// lookup returns the key of an announced block, from the index or the current delta.
func (t *Translator) lookup(h block.EngineHash) (block.Key, bool) {
	if n := len(t.out.Blocks); n > t.cleared && t.out.Blocks[n-1].Hash == h { // the next block of the same prompt
		return t.out.Blocks[n-1].Key, true
	}
	if !t.wiped {
		if key := t.indexed(h); key != 0 {
			return key, true
		}
	}
	return t.fresh.find(t.out.Blocks, h)
}

// indexed returns the key of a block in the index, or 0.
func (t *Translator) indexed(h block.EngineHash) block.Key {
	if t.next < len(t.parents) && t.parents[t.next] == h {
		return t.keys[t.next]
	}
	key, _ := t.opt.Index.Lookup(t.opt.Source, h)
	return key
}

// store appends the blocks of an event, one index block per engine block.
func (t *Translator) store(e *decode.Event, tier block.Tier, from block.Key, root bool) {
	d, size := t.out, int(e.BlockSize)
	d.Ops = append(d.Ops, block.Op{
		Kind: block.OpStore, Tier: tier, Group: groupOf(e), Root: root, From: from, Parent: e.Parent,
		First: uint32(len(d.Blocks)), N: uint32(len(e.Hashes)),
	})
	judge := t.judges && len(e.Hashes) <= generatedBlocks
	extra, key, held := e.Extra, from, false
	if t.awaits(root) {
		_, held = t.lookup(e.Hashes[0])
	}
	t.text = t.text[:0]
	for i, h := range e.Hashes {
		ids := e.Tokens[i*size : (i+1)*size]
		if len(e.Lookahead) > 0 {
			ids = t.shifted(e, i, root)
		}
		start := len(t.text)
		own := extraOf(extra, i)
		extra = extra[len(own):]
		var known bool
		var illustrated bool
		if t.text, illustrated = t.illustrated(t.text, own, ids, begin(e, i, root)); illustrated {
			known = true
			key = t.opt.Hasher.Child(key, t.text[start:])
		} else {
			key, known = t.child(key, ids)
		}
		b := block.StoredBlock{Hash: h, Bytes: uint32(len(t.text) - start), Tokens: e.BlockSize}
		for _, k := range own {
			if k.Kind != decode.ExtraPair || !illustrated {
				key = t.mixExtra(key, e, k, root)
			}
		}
		if judge && known && !t.opt.Canonical(t.before(e, root, start), ids, t.text[start:]) {
			b.Flags |= block.FlagNonCanonical
			t.stats.NonCanonical++
		}
		b.Key = key
		d.Blocks = append(d.Blocks, b)
	}
	if t.awaits(root) && t.again(e, from, held) {
		for i := len(d.Blocks) - len(e.Hashes); i < len(d.Blocks); i++ {
			d.Blocks[i].Flags |= block.FlagAgain
		}
		t.park.reported(e.Hashes)
		t.stats.Reports++
	}
	t.stats.Stored += uint64(len(e.Hashes))
	if t.judges {
		if t.tails == nil {
			t.tails = new(tails)
		}
		t.tails.put(e.Hashes[len(e.Hashes)-1], t.text)
	}
}

// shifted returns the tokens of block i of an event whose hashes cover some tokens after their
// blocks. The index cuts the text after these tokens, so that it finds a block exactly when the
// engine does, in prompts that continue with the same tokens.
func (t *Translator) shifted(e *decode.Event, i int, root bool) []uint32 {
	size, n := int(e.BlockSize), len(e.Lookahead)/len(e.Hashes)
	start := i*size + begin(e, i, root)
	t.ids = append(append(t.ids[:0], e.Tokens[start:(i+1)*size]...), e.Lookahead[i*n:(i+1)*n]...)
	return t.ids
}

// begin returns the token offset within block i at which the index starts it.
func begin(e *decode.Event, i int, root bool) int {
	if len(e.Lookahead) == 0 || i == 0 && root {
		return 0
	}
	return len(e.Lookahead) / len(e.Hashes)
}

// child appends the bytes of ids to t.text and returns the key of their block below parent. known
// is false if the vocabulary lacks an id, or all are empty; the block then gets a key that no text
// has.
func (t *Translator) child(parent block.Key, ids []uint32) (key block.Key, known bool) {
	start := len(t.text)
	if t.opt.Vocabulary == nil {
		t.text = appendIDs(t.text, ids)
	} else {
		t.text, known = t.opt.Vocabulary.AppendTokens(t.text, ids)
		if !known || len(t.text) == start {
			return t.unrendered(parent, ids), false
		}
	}
	return t.opt.Hasher.Child(parent, t.text[start:]), true
}

// unrendered returns the key of a block without known text, and adds one byte to t.text, since a
// block is never empty.
func (t *Translator) unrendered(parent block.Key, ids []uint32) block.Key {
	start := len(t.text)
	t.text = appendIDs(t.text, ids)
	key := t.opt.Hasher.Child(parent, t.text[start:])
	t.text = t.text[:start+1]
	t.stats.Unrendered++
	return t.opt.Hasher.Child(key, markUnrendered)
}

func appendIDs(dst []byte, ids []uint32) []byte {
	for _, id := range ids {
		dst = binary.LittleEndian.AppendUint32(dst, id)
	}
	return dst
}

// move handles a store without tokens: known blocks are held in another tier too.
func (t *Translator) move(e *decode.Event, tier block.Tier) {
	plain := e.Hashes
	if t.pages != nil {
		plain = t.pages.move(t, e.Hashes, tier)
	}
	if len(plain) == 0 {
		return
	}
	t.stats.Moved += uint64(len(plain))
	t.list(block.OpMove, tier, groupOf(e), plain)
}

// removed handles one BlockRemoved.
func (t *Translator) removed(e *decode.Event) {
	tier, ok := t.admit(e)
	if !ok || len(e.Hashes) == 0 {
		return
	}
	plain := e.Hashes
	if t.pages != nil {
		plain = t.pages.remove(t, plain, tier)
	}
	if t.park.blocks > 0 {
		plain = t.park.remove(plain, tier)
	}
	if len(plain) == 0 {
		return
	}
	t.stats.Removed += uint64(len(plain))
	t.list(block.OpRemove, tier, groupOf(e), plain)
}

// list appends an operation on hashes, merged with a directly preceding one of the same kind.
func (t *Translator) list(kind block.OpKind, tier block.Tier, g uint8, hashes []block.EngineHash) {
	d := t.out
	first := uint32(len(d.Hashes))
	d.Hashes = append(d.Hashes, hashes...)
	if n := len(d.Ops); n > 0 {
		last := &d.Ops[n-1]
		if last.Kind == kind && last.Tier == tier && last.Group == g && last.First+last.N == first {
			last.N += uint32(len(hashes))
			return
		}
	}
	d.Ops = append(d.Ops, block.Op{Kind: kind, Tier: tier, Group: g, First: first, N: uint32(len(hashes))})
}
