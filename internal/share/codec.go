package share

import (
	"encoding/binary"
	"errors"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/wire"
)

// errWire means that a peer sent a malformed batch.
var errWire = errors.New("share: malformed batch from a peer")

// The shared form of an engine's event batch: a version, the hash of the batch's payload (8 bytes),
// and the delta. A later reader uses the hash to check that the engine is still the same. The short
// version contains the delta's short form, which can only be decoded after the preceding batches.
// The other version contains self-contained deltas, each preceded by its length. A batch over the
// limits of one delta is split.
const (
	payloadVersion = 1
	payloadShort   = 2
	payloadHead    = 9

	// payloadMissed is a flag in the version. It means that the reader could not place everything
	// that the engine stored, because it had not seen the preceding blocks.
	payloadMissed = 0x80
)

// payloadNeeds is the log's LogOptions.Needs.
func payloadNeeds(b []byte) uint64 {
	if len(b) > 0 && b[0]&^payloadMissed == payloadShort {
		return indexVersion
	}
	return 1
}

func appendPayloadHead(b []byte, version byte, sum uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, version), sum)
}

// payloadSum returns the hash in the payload's header.
func payloadSum(b []byte) uint64 { return binary.LittleEndian.Uint64(b[1:]) }

// fits reports whether a delta can be encoded without splitting.
func fits(d *block.Delta) bool {
	return len(d.Ops) <= wire.MaxDeltaOps && len(d.Blocks) <= wire.MaxDeltaBlocks && len(d.Hashes) <= wire.MaxDeltaHashes
}

// appendPayload appends the self-contained form of one batch.
func appendPayload(b []byte, sum uint64, d *block.Delta) []byte {
	b = appendPayloadHead(b, payloadVersion, sum)
	if len(d.Ops) == 0 {
		return b
	}
	if fits(d) {
		return appendPart(b, d)
	}
	for _, part := range split(d) {
		b = appendPart(b, &part)
	}
	return b
}

// appendPart appends one delta, preceded by its length.
func appendPart(b []byte, d *block.Delta) []byte {
	at := len(b)
	b = wire.AppendDelta(append(b, 0, 0, 0, 0), d)
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// split divides a delta into parts within the limits. A long store continues below the last block
// of the preceding part.
func split(d *block.Delta) (parts []block.Delta) {
	const most = min(wire.MaxDeltaBlocks, wire.MaxDeltaHashes)
	var cur block.Delta
	flush := func() {
		parts = append(parts, cur)
		cur = block.Delta{}
	}
	for _, op := range d.Ops {
		first, left := op.First, op.N
		if op.Kind == block.OpClear {
			left = 0
		}
		for again := true; again; again = left > 0 {
			if len(cur.Ops) == wire.MaxDeltaOps || len(cur.Blocks) == most || len(cur.Hashes) == most {
				flush()
			}
			piece := op
			if op.Kind == block.OpStore {
				piece.First, piece.N = uint32(len(cur.Blocks)), min(left, uint32(most-len(cur.Blocks)))
				if first != op.First {
					above := d.Blocks[first-1]
					piece.Root, piece.From, piece.Parent = false, above.Key, above.Hash
				}
				cur.Blocks = append(cur.Blocks, d.Blocks[first:first+piece.N]...)
			} else if op.Kind != block.OpClear {
				piece.First, piece.N = uint32(len(cur.Hashes)), min(left, uint32(most-len(cur.Hashes)))
				cur.Hashes = append(cur.Hashes, d.Hashes[first:first+piece.N]...)
			} else {
				piece.N = 0
			}
			cur.Ops = append(cur.Ops, piece)
			first, left = first+piece.N, left-piece.N
		}
	}
	flush()
	return parts
}

// readPayload decodes a self-contained payload. It validates the complete payload before it uses
// any part.
func readPayload(b []byte) (sum uint64, parts []block.Delta, err error) {
	if len(b) < payloadHead || b[0]&^payloadMissed != payloadVersion {
		return 0, nil, errWire
	}
	sum = payloadSum(b)
	for b = b[payloadHead:]; len(b) > 0; {
		if len(b) < 4 {
			return 0, nil, errWire
		}
		n := binary.LittleEndian.Uint32(b)
		if uint64(n) > uint64(len(b)-4) {
			return 0, nil, errWire
		}
		parts = append(parts, block.Delta{})
		if err := wire.DecodeDelta(b[4:4+n], &parts[len(parts)-1]); err != nil {
			return 0, nil, err
		}
		b = b[4+n:]
	}
	return sum, parts, nil
}

// shareHead is the first page of a snapshot.
type shareHead struct {
	mayBeStale bool   // may contain entries that the engine has evicted
	have       bool   // last and sum are valid
	last       uint64 // the last batch in the content
	sum        uint64 // hash of that batch's payload
}

const headBytes = 18

func (h *shareHead) append(b []byte) []byte {
	flags := byte(0)
	if h.mayBeStale {
		flags |= 1
	}
	if h.have {
		flags |= 2
	}
	b = binary.LittleEndian.AppendUint64(append(b, payloadVersion, flags), h.last)
	return binary.LittleEndian.AppendUint64(b, h.sum)
}

func readHead(b []byte) (h shareHead, err error) {
	if len(b) != headBytes || b[0] != payloadVersion || b[1] > 3 {
		return h, errWire
	}
	return shareHead{
		mayBeStale: b[1]&1 != 0, have: b[1]&2 != 0,
		last: binary.LittleEndian.Uint64(b[2:]), sum: binary.LittleEndian.Uint64(b[10:]),
	}, nil
}
