package kvstream

import (
	"fmt"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
)

// Format is the wire format of events of a range of vLLM versions.
type Format uint8

// Formats. Positional formats grew field by field; FormatMap has field names.
const (
	FormatMap    Format = iota // 0.24 and later
	FormatArray                // 0.23, the last positional format
	FormatArray0               // 0.9.0: no rank in the batch
	FormatArray1               // 0.9.1: rank
	FormatArray2               // 0.10.2: medium
	FormatArray3               // 0.14: lora_name
	FormatArray4               // 0.16: extra_keys
	FormatArray5               // group_idx
)

var formatNames = [...]string{"map", "array", "array0", "array1", "array2", "array3", "array4", "array5"}

func (f Format) String() string { return formatNames[f] }

// ParseFormat is the inverse of String.
func ParseFormat(s string) (Format, error) {
	if i := slices.Index(formatNames[:], s); i >= 0 {
		return Format(i), nil
	}
	return 0, fmt.Errorf("kvstream: unknown event format %q, want one of %q", s, formatNames)
}

// storedWidth and removedWidth return the number of elements of the positional events, including
// the tag.
func (f Format) storedWidth() uint32 {
	return [...]uint32{FormatArray: 12, FormatArray0: 6, FormatArray1: 6, FormatArray2: 7, FormatArray3: 8, FormatArray4: 9, FormatArray5: 10}[f]
}

func (f Format) removedWidth() uint32 {
	return [...]uint32{FormatArray: 4, FormatArray0: 2, FormatArray1: 2, FormatArray2: 3, FormatArray3: 3, FormatArray4: 3, FormatArray5: 4}[f]
}

// Wire names, verbatim.
const (
	tagStored  = "BlockStored"
	tagRemoved = "BlockRemoved"
	tagCleared = "AllBlocksCleared"
	mediumGPU  = "GPU"
	kindFull   = "full_attention"
	keyType    = "type"
	keyHashes  = "block_hashes"
	keyMedium  = "medium"
	keyGroup   = "group_idx"
)

// Batch holds the fields of a message other than its events.
type Batch struct {
	Time      float64 // seconds since the epoch
	Rank      int
	BlockSize int
}

// AppendBatch appends the encoded batch to dst. Adjacent removals stay
// separate events, as engines send them.
func AppendBatch(dst []byte, f Format, b Batch, events []engine.Event) []byte {
	n := uint32(3)
	if f == FormatArray0 {
		n = 2
	}
	dst = msgp.AppendArrayHeader(dst, n)
	dst = msgp.AppendFloat64(dst, b.Time)
	dst = msgp.AppendArrayHeader(dst, uint32(len(events)))
	for i := range events {
		switch ev := &events[i]; ev.Kind {
		case engine.Stored:
			dst = appendStored(dst, f, b.BlockSize, ev)
		case engine.Removed:
			dst = appendRemoved(dst, f, ev.Hash)
		case engine.Cleared:
			dst = appendCleared(dst, f)
		}
	}
	if f != FormatArray0 {
		dst = msgp.AppendUint64(dst, uint64(b.Rank))
	}
	return dst
}

func appendStored(dst []byte, f Format, blockSize int, ev *engine.Event) []byte {
	width := uint32(11)
	if f == FormatMap {
		dst = msgp.AppendMapHeader(dst, width)
		dst = msgp.AppendString(dst, keyType)
	} else {
		width = f.storedWidth()
		dst = msgp.AppendArrayHeader(dst, width)
	}
	dst = msgp.AppendString(dst, tagStored)
	fields := [...]struct {
		key   string
		value func([]byte) []byte
	}{
		{keyHashes, func(b []byte) []byte { return appendHashes(b, ev.Hashes) }},
		{"parent_block_hash", func(b []byte) []byte { return appendParent(b, ev) }},
		{"token_ids", func(b []byte) []byte { return appendTokens(b, ev.Tokens) }},
		{"block_size", func(b []byte) []byte { return msgp.AppendUint64(b, uint64(blockSize)) }},
		{"lora_id", func(b []byte) []byte { return appendLoRAID(b, ev.Tag) }},
		{keyMedium, func(b []byte) []byte { return msgp.AppendString(b, mediumGPU) }},
		{"lora_name", func(b []byte) []byte { return appendLoRA(b, ev.Tag) }},
		{"extra_keys", func(b []byte) []byte { return appendExtra(b, ev) }},
		{keyGroup, func(b []byte) []byte { return msgp.AppendUint64(b, 0) }},
		{"kv_cache_spec_kind", func(b []byte) []byte { return msgp.AppendString(b, kindFull) }},
		{"kv_cache_spec_sliding_window", msgp.AppendNil},
	}
	for _, field := range fields[:width-1] {
		if f == FormatMap {
			dst = msgp.AppendString(dst, field.key)
		}
		dst = field.value(dst)
	}
	return dst
}

func appendRemoved(dst []byte, f Format, h engine.Hash) []byte {
	hashes := [1]engine.Hash{h}
	if f == FormatMap {
		dst = msgp.AppendMapHeader(dst, 4)
		dst = msgp.AppendString(dst, keyType)
		dst = msgp.AppendString(dst, tagRemoved)
		dst = appendHashes(msgp.AppendString(dst, keyHashes), hashes[:])
		dst = msgp.AppendString(msgp.AppendString(dst, keyMedium), mediumGPU)
		return msgp.AppendUint64(msgp.AppendString(dst, keyGroup), 0)
	}
	width := f.removedWidth()
	dst = msgp.AppendArrayHeader(dst, width)
	dst = msgp.AppendString(dst, tagRemoved)
	dst = appendHashes(dst, hashes[:])
	if width > 2 {
		dst = msgp.AppendString(dst, mediumGPU)
	}
	if width > 3 {
		dst = msgp.AppendUint64(dst, 0)
	}
	return dst
}

func appendCleared(dst []byte, f Format) []byte {
	if f == FormatMap {
		dst = msgp.AppendMapHeader(dst, 1)
		dst = msgp.AppendString(dst, keyType)
	} else {
		dst = msgp.AppendArrayHeader(dst, 1)
	}
	return msgp.AppendString(dst, tagCleared)
}

func appendHashes(dst []byte, hashes []engine.Hash) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(hashes)))
	for _, h := range hashes {
		dst = msgp.AppendUint64(dst, uint64(h))
	}
	return dst
}

func appendParent(dst []byte, ev *engine.Event) []byte {
	if !ev.HasParent {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendUint64(dst, uint64(ev.Parent))
}

func appendTokens(dst []byte, tokens []uint32) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(tokens)))
	for _, t := range tokens {
		dst = msgp.AppendUint64(dst, uint64(t))
	}
	return dst
}

func appendLoRAID(dst []byte, tag *engine.Tag) []byte {
	if tag == nil || tag.LoRAID == 0 {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendUint64(dst, uint64(tag.LoRAID))
}

func appendLoRA(dst []byte, tag *engine.Tag) []byte {
	if tag == nil || tag.LoRA == "" {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendString(dst, tag.LoRA)
}

// appendExtra writes one entry per block: the adapter's name, and the salt for the first block of a
// sequence.
func appendExtra(dst []byte, ev *engine.Event) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(ev.Hashes)))
	for i := range ev.Hashes {
		var keys [2]string
		n := 0
		if ev.Tag != nil && ev.Tag.LoRA != "" {
			keys[n] = ev.Tag.LoRA
			n++
		}
		if ev.Tag != nil && ev.Tag.Salt != "" && ev.Offset+i == 0 {
			keys[n] = ev.Tag.Salt
			n++
		}
		if n == 0 {
			dst = msgp.AppendNil(dst)
			continue
		}
		dst = msgp.AppendArrayHeader(dst, uint32(n))
		for _, k := range keys[:n] {
			dst = msgp.AppendString(dst, k)
		}
	}
	return dst
}
