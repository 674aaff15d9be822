package wire

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/varint"
)

// deltaVersion is the first byte of an encoded Delta. A decoder rejects other versions, so every
// layout change must change it.
const deltaVersion = 1

// Limits of an encoded Delta. DecodeDelta rejects more; writers must split larger Deltas.
const (
	MaxDeltaOps    = 1 << 16
	MaxDeltaBlocks = 1 << 18 // of Delta.Blocks
	MaxDeltaHashes = 1 << 18 // of Delta.Hashes
)

// Errors of DecodeDelta and DecodeKeys.
var (
	ErrCodecVersion = errors.New("indexer: unknown encoding version")
	ErrCodecShort   = varint.ErrShort
	ErrCodecLimit   = errors.New("indexer: encoding over a limit")
	ErrCodecValue   = varint.ErrValue
)

// The head of an operation is one byte:
//
//	bits 0-1 kind, bits 2-3 tier, then the flags below.
//
// These fields follow, in this order: the group (1 byte, headGroup) and N (varint, absent with
// headOne). A store continues with From (8, absent with headAgain), Parent (8, absent with headRoot
// or headAgain), the tokens of a usual block (varint, absent if N is 0) and the blocks. A removal
// or a move continues with the hashes, 8 bytes each.
const (
	headKind  = 3
	headTier  = 3 << 2
	headGroup = 1 << 4 // a group other than 0 follows
	headRoot  = 1 << 5 // Op.Root
	headOne   = 1 << 6 // N is 1
	// headAgain: From and Parent equal the block stored last in this delta; with headRoot, From
	// equals the From of the last root store.
	headAgain = 1 << 7
)

// A block is hash (8), key (8) and a varint. The varint is the zigzag difference of its length in
// bytes to the previous block, shifted left by one. For the first block the difference is to four
// times the usual tokens. Bit 0 means that flags (1 byte) and tokens (varint) follow, because they
// differ from 0 and the usual number.
const minBlockSize = 17

// deltaChain is the state by which encoder and decoder omit fields that follow from earlier
// operations.
type deltaChain struct {
	root, key block.Key
	hash      block.EngineHash
	haveRoot  bool
	haveBlock bool
}

// again reports whether op continues at the chain's position.
func (c *deltaChain) again(op *block.Op) bool {
	if op.Root {
		return c.haveRoot && op.From == c.root
	}
	return c.haveBlock && op.From == c.key && op.Parent == c.hash
}

// after moves the chain past op and the blocks that it stored.
func (c *deltaChain) after(op *block.Op, blocks []block.StoredBlock) {
	if op.Root {
		c.root, c.haveRoot = op.From, true
	}
	if n := len(blocks); n > 0 {
		c.key, c.hash, c.haveBlock = blocks[n-1].Key, blocks[n-1].Hash, true
	}
}

// AppendDelta appends the encoding of d to dst. It preserves operations, their order, and their
// blocks and hashes. Fields that an operation's kind does not use are decoded as zero, and First as
// the running count. It panics if an operation's range is outside of d.
func AppendDelta(dst []byte, d *block.Delta) []byte {
	dst = append(dst, deltaVersion)
	var chain deltaChain
	for i := range d.Ops {
		op := &d.Ops[i]
		dst = appendHead(dst, op, op.Kind == block.OpStore && chain.again(op))
		switch op.Kind {
		case block.OpStore:
			blocks := d.Blocks[op.First : op.First+op.N]
			dst = appendBlocks(dst, blocks)
			chain.after(op, blocks)
		case block.OpRemove, block.OpMove:
			dst = appendHashes(dst, d.Hashes[op.First:op.First+op.N])
		}
	}
	return dst
}

func appendHashes(dst []byte, hashes []block.EngineHash) []byte {
	for _, h := range hashes {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(h))
	}
	return dst
}

func appendHead(dst []byte, op *block.Op, again bool) []byte {
	head := byte(op.Kind)&headKind | byte(op.Tier)<<2&headTier
	if op.Group != 0 {
		head |= headGroup
	}
	if op.Kind == block.OpStore && op.Root {
		head |= headRoot
	}
	if op.N == 1 && op.Kind != block.OpClear {
		head |= headOne
	}
	if again {
		head |= headAgain
	}
	dst = append(dst, head)
	if head&headGroup != 0 {
		dst = append(dst, op.Group)
	}
	if op.Kind == block.OpClear {
		return dst
	}
	if head&headOne == 0 {
		dst = binary.AppendUvarint(dst, uint64(op.N))
	}
	if op.Kind != block.OpStore || again {
		return dst
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(op.From))
	if !op.Root {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(op.Parent))
	}
	return dst
}

func appendBlocks(dst []byte, blocks []block.StoredBlock) []byte {
	if len(blocks) == 0 {
		return dst
	}
	usual := blocks[0].Tokens
	return appendBlockList(binary.AppendUvarint(dst, uint64(usual)), blocks, usual)
}

func appendBlockList(dst []byte, blocks []block.StoredBlock, usual uint32) []byte {
	length := usualBytes(usual)
	for i := range blocks {
		b := &blocks[i]
		dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Hash))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Key))
		step := int64(b.Bytes) - length
		length = int64(b.Bytes)
		word := uint64(step<<1^step>>63) << 1
		if b.Tokens == usual && b.Flags == 0 {
			dst = binary.AppendUvarint(dst, word)
			continue
		}
		dst = binary.AppendUvarint(dst, word|1)
		dst = append(dst, byte(b.Flags))
		dst = binary.AppendUvarint(dst, uint64(b.Tokens))
	}
	return dst
}

// usualBytes is the reference for the length of an operation's first block: exact in token space,
// approximate in text space.
func usualBytes(tokens uint32) int64 { return 4 * int64(tokens) }

// DecodeDelta decodes an encoding of AppendDelta into d, whose memory it reuses. Any input is safe:
// allocations are bounded by the length of b and by the Max constants. After an error d is empty.
func DecodeDelta(b []byte, d *block.Delta) error {
	d.Reset()
	r := varint.Reader{B: b}
	if r.Byte() != deltaVersion {
		return ErrCodecVersion
	}
	var chain deltaChain
	for len(r.B) > 0 && r.Err == nil {
		decodeOp(&r, d, &chain)
	}
	if r.Err != nil {
		d.Reset()
	}
	return r.Err
}

func decodeOp(r *varint.Reader, d *block.Delta, chain *deltaChain) {
	if len(d.Ops) == MaxDeltaOps {
		r.Fail(ErrCodecLimit)
		return
	}
	head := r.Byte()
	op := block.Op{Kind: block.OpKind(head & headKind), Tier: block.Tier(head & headTier >> 2)}
	if head&headGroup != 0 {
		if op.Group = r.Byte(); op.Group == 0 {
			r.Fail(ErrCodecValue)
		}
	}
	if op.Kind != block.OpStore && head&(headRoot|headAgain) != 0 {
		r.Fail(ErrCodecValue)
	}
	switch {
	case op.Kind == block.OpClear && head&headOne != 0:
		r.Fail(ErrCodecValue)
	case head&headOne != 0:
		op.N = 1
	case op.Kind != block.OpClear:
		op.N = r.Uint32()
	}
	switch op.Kind {
	case block.OpStore:
		decodeParent(r, &op, head, chain)
		decodeBlocks(r, d, &op)
		chain.after(&op, d.Blocks[op.First:])
	case block.OpRemove, block.OpMove:
		decodeHashes(r, d, &op)
	}
	if r.Err == nil {
		d.Ops = append(d.Ops, op)
	}
}

func decodeParent(r *varint.Reader, op *block.Op, head byte, chain *deltaChain) {
	op.Root = head&headRoot != 0
	again := head&headAgain != 0
	switch {
	case again && op.Root && chain.haveRoot:
		op.From = chain.root
	case again && !op.Root && chain.haveBlock:
		op.From, op.Parent = chain.key, chain.hash
	case again:
		r.Fail(ErrCodecValue)
	case op.Root:
		op.From = block.Key(r.Fixed64())
	default:
		op.From = block.Key(r.Fixed64())
		op.Parent = block.EngineHash(r.Fixed64())
	}
}

func decodeBlocks(r *varint.Reader, d *block.Delta, op *block.Op) {
	op.First = uint32(len(d.Blocks))
	if op.N > 0 && r.Err == nil {
		decodeBlockList(r, d, op, r.Uint32())
	}
}

// decodeBlockList reads the blocks of op, whose First is set.
func decodeBlockList(r *varint.Reader, d *block.Delta, op *block.Op, usual uint32) {
	if uint64(op.First)+uint64(op.N) > MaxDeltaBlocks {
		r.Fail(ErrCodecLimit)
	}
	if !r.Has(uint64(op.N) * minBlockSize) {
		return
	}
	length := usualBytes(usual)
	for range op.N {
		b := block.StoredBlock{Hash: block.EngineHash(r.Fixed64()), Key: block.Key(r.Fixed64()), Tokens: usual}
		word := r.Uint()
		if word&1 != 0 {
			b.Flags = block.Flags(r.Byte())
			b.Tokens = r.Uint32()
		}
		zig := word >> 1
		length += int64(zig>>1) ^ -int64(zig&1)
		if length < 0 || length > math.MaxUint32 {
			r.Fail(ErrCodecValue)
		}
		if r.Err != nil {
			return
		}
		b.Bytes = uint32(length)
		d.Blocks = append(d.Blocks, b)
	}
}

// placeHashes sets op.First, and reports whether the hashes of op are within the limit and
// complete, at width bytes each.
func placeHashes(r *varint.Reader, d *block.Delta, op *block.Op, width uint64) bool {
	op.First = uint32(len(d.Hashes))
	if uint64(op.First)+uint64(op.N) > MaxDeltaHashes {
		r.Fail(ErrCodecLimit)
	}
	return r.Has(uint64(op.N) * width)
}

func decodeHashes(r *varint.Reader, d *block.Delta, op *block.Op) {
	if !placeHashes(r, d, op, 8) {
		return
	}
	for range op.N {
		d.Hashes = append(d.Hashes, block.EngineHash(r.Fixed64()))
	}
}
