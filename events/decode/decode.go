package decode

import (
	"fmt"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Names on the wire: event kinds, and the fields of batches and events in
// their map form.
const (
	nameStored    = "BlockStored"
	nameRemoved   = "BlockRemoved"
	nameCleared   = "AllBlocksCleared"
	keyTime       = "ts"
	keyEvents     = "events"
	keyRank       = "data_parallel_rank"
	keyRankSGLang = "attn_dp_rank"
	keyType       = "type"
)

// field is a field of an event in any encoding.
type field uint8

const (
	fieldUnknown field = iota
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldLoraID
	fieldMedium
	fieldLoraName
	fieldExtraKeys
	fieldGroup
	fieldSpecKind
	fieldWindow
	fieldLookahead
	fieldLocality
	fieldOwnership
	fieldCacheSalt
)

// storedFields and removedFields map array positions to fields; position 0 is the tag.
var (
	storedFields = [...]field{
		fieldUnknown, fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoraID,
		fieldMedium, fieldLoraName, fieldExtraKeys, fieldGroup, fieldSpecKind, fieldWindow,
	}
	removedFields = [...]field{fieldUnknown, fieldHashes, fieldMedium, fieldGroup}
)

func fieldOf(key []byte) field {
	switch string(key) {
	case "block_hashes":
		return fieldHashes
	case "parent_block_hash":
		return fieldParent
	case "token_ids":
		return fieldTokens
	case "block_size":
		return fieldBlockSize
	case "lora_id":
		return fieldLoraID
	case "medium":
		return fieldMedium
	case "lora_name":
		return fieldLoraName
	case "extra_keys":
		return fieldExtraKeys
	case "group_idx":
		return fieldGroup
	case "kv_cache_spec_kind":
		return fieldSpecKind
	case "kv_cache_spec_sliding_window":
		return fieldWindow
	case "lookahead_token_ids":
		return fieldLookahead
	case "locality":
		return fieldLocality
	case "ownership":
		return fieldOwnership
	case "cache_salt":
		return fieldCacheSalt
	}
	return fieldUnknown
}

func kindOf(name []byte) EventKind {
	switch string(name) {
	case nameStored:
		return BlockStored
	case nameRemoved:
		return BlockRemoved
	case nameCleared:
		return AllBlocksCleared
	}
	return 0
}

// Decode parses one msgpack batch in any format published by vLLM, SGLang or TensorRT-LLM, with
// batches and events as arrays or maps in any mixture. Unknown or malformed events are counted and
// skipped. An error means that the batch could not be read to its end; b then has the events before
// the error. b refers to payload until the next Decode.
func (b *Batch) Decode(payload []byte) error {
	b.reset()
	var err error
	switch msgp.NextType(payload) {
	case msgp.ArrayType:
		err = b.arrayBatch(payload)
	case msgp.MapType:
		err = b.mapBatch(payload)
	default:
		return fmt.Errorf("%w: neither array nor map", ErrMalformed)
	}
	if err != nil {
		return fmt.Errorf("events: decode: %w", err)
	}
	return nil
}

func (b *Batch) arrayBatch(p []byte) error {
	n, p, err := arrayHeader(p)
	if err != nil {
		return err
	}
	if n < 2 {
		return fmt.Errorf("%w: %d elements", ErrMalformed, n)
	}
	if p, err = b.time(p); err != nil {
		return err
	}
	if p, err = b.events(p); err != nil || n == 2 {
		return err
	}
	_, err = b.rank(p)
	return err
}

func (b *Batch) mapBatch(p []byte) error {
	n, p, err := mapHeader(p)
	if err != nil {
		return err
	}
	for ; n > 0; n-- {
		var key []byte
		if key, p, err = readText(p); err != nil {
			return err
		}
		switch string(key) {
		case keyTime:
			p, err = b.time(p)
		case keyEvents:
			p, err = b.events(p)
		case keyRank, keyRankSGLang:
			p, err = b.rank(p)
		default:
			p, err = skipValue(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Batch) time(p []byte) (rest []byte, err error) {
	switch msgp.NextType(p) {
	case msgp.Float64Type, msgp.Float32Type:
		b.Time, rest, err = msgp.ReadFloat64Bytes(p)
		return rest, err
	case msgp.IntType, msgp.UintType:
		seconds, _, rest, err := readInt(p)
		b.Time = float64(seconds)
		return rest, err
	default:
		return skipValue(p)
	}
}

func (b *Batch) rank(p []byte) ([]byte, error) {
	v, ok, rest, err := readInt(p)
	if ok && err == nil && v >= 0 && v < 1<<16 {
		b.Rank = int32(v)
	}
	return rest, err
}

func (b *Batch) events(p []byte) ([]byte, error) {
	if rest, ok := takeNil(p); ok {
		return rest, nil
	}
	n, p, err := arrayHeader(p)
	if err != nil {
		return p, err
	}
	for ; n > 0; n-- {
		if p, err = b.next(p); err != nil {
			return p, err
		}
	}
	return p, nil
}

// next parses one event, in either form, into b.Events. An unknown or malformed event is only
// counted.
func (b *Batch) next(start []byte) (rest []byte, err error) {
	at, hashes, tokens, extra := len(b.Events), len(b.hashes), len(b.tokens), len(b.extra)
	if at == maxEvents {
		return start, ErrTooLarge
	}
	b.Events = slices.Grow(b.Events, 1)[:at+1]
	e := &b.Events[at]
	for i := range b.shapes {
		if rest, ok := b.alike(e, start, &b.shapes[i]); ok {
			return rest, nil
		}
		b.hashes, b.tokens = b.hashes[:hashes], b.tokens[:tokens]
	}
	*e, b.at = Event{Group: NoGroup}, places{}
	switch msgp.NextType(start) {
	case msgp.ArrayType:
		rest, err = b.arrayEvent(e, start)
	case msgp.MapType:
		rest, err = b.mapEvent(e, start)
	default:
		err = ErrMalformed
	}
	if err == nil && e.Kind != 0 {
		b.learn(start, rest)
		return rest, nil
	}
	b.Events = b.Events[:at]
	b.hashes, b.tokens, b.extra = b.hashes[:hashes], b.tokens[:tokens], b.extra[:extra]
	if err == nil {
		b.Unknown++
		return rest, nil
	}
	b.Malformed++
	return skipValue(start)
}

func (b *Batch) arrayEvent(e *Event, start []byte) ([]byte, error) {
	n, p, err := arrayHeader(start)
	if err != nil {
		return p, err
	}
	if n == 0 {
		return p, ErrMalformed
	}
	tag, p, err := readText(p)
	if err != nil {
		return p, err
	}
	var fields []field
	switch e.Kind = kindOf(tag); e.Kind {
	case BlockStored:
		fields = storedFields[:]
	case BlockRemoved:
		fields = removedFields[:]
	case AllBlocksCleared:
	default:
		return skipValue(start)
	}
	for i := 1; i < n; i++ {
		f := fieldUnknown
		if i < len(fields) {
			f = fields[i]
		}
		if f == fieldLoraName && msgp.NextType(p) == msgp.MapType {
			p, err = b.metadata(e, p)
		} else {
			p, err = b.field(e, f, p)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// metadata parses the map that SGLang sends in place of vLLM's adapter name.
func (b *Batch) metadata(e *Event, p []byte) ([]byte, error) {
	n, p, err := mapHeader(p)
	if err != nil {
		return p, err
	}
	return b.mapFields(e, p, n)
}

func (b *Batch) mapEvent(e *Event, start []byte) ([]byte, error) {
	n, p, err := mapHeader(start)
	if err != nil {
		return p, err
	}
	var tag []byte
	if key, rest, err := readText(p); n > 0 && err == nil && string(key) == keyType {
		if tag, p, err = readText(rest); err != nil {
			return p, err
		}
		n--
	} else if tag, err = typeOf(p, n); err != nil {
		return p, err
	}
	if e.Kind = kindOf(tag); e.Kind == 0 {
		return skipValue(start)
	}
	return b.mapFields(e, p, n)
}

// typeOf finds the "type" among n entries of an event in map form.
func typeOf(p []byte, n int) ([]byte, error) {
	for ; n > 0; n-- {
		key, rest, err := readText(p)
		if err != nil {
			return nil, err
		}
		if string(key) == keyType {
			tag, _, err := readText(rest)
			return tag, err
		}
		if p, err = skipValue(rest); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: event without type", ErrMalformed)
}

// mapFields reads n entries of an event in map form.
func (b *Batch) mapFields(e *Event, p []byte, n int) ([]byte, error) {
	for ; n > 0; n-- {
		var key []byte
		var err error
		if len(p) > 32 && p[0]&0xe0 == mpFixStr { // all known keys
			end := 1 + int(p[0]&0x1f)
			key, p = p[1:end], p[end:]
		} else if key, p, err = readText(p); err != nil {
			return p, err
		}
		if rest, ok := takeNil(p); ok {
			p = rest
			continue
		}
		if p, err = b.field(e, fieldOf(key), p); err != nil {
			return p, err
		}
	}
	return p, nil
}

// field parses the value of one field; nil counts as absent.
func (b *Batch) field(e *Event, f field, p []byte) (rest []byte, err error) {
	if rest, ok := takeNil(p); ok {
		return rest, nil
	}
	var v int64
	switch f {
	case fieldHashes:
		rest, err = b.hashList(e, p)
		b.at.hashes.note(p, rest)
	case fieldTokens:
		start := len(b.tokens)
		b.tokens, rest, err = appendTokens(b.tokens, p)
		e.Tokens = b.tokens[start:len(b.tokens):len(b.tokens)]
		b.at.tokens.note(p, rest)
	case fieldExtraKeys:
		return b.extraKeys(e, p)
	case fieldParent:
		e.HasParent = true
		e.Parent, rest, err = readHash(p)
		b.at.parent.note(p, rest)
	case fieldBlockSize:
		if v, _, rest, err = readInt(p); err == nil && (v < 0 || v > maxTokens) {
			err = fmt.Errorf("%w: block size %d", ErrMalformed, v)
		}
		e.BlockSize = uint32(v)
	case fieldGroup:
		var ok bool
		if v, ok, rest, err = readInt(p); err == nil && ok && (v < 0 || v > 1<<30) {
			err = fmt.Errorf("%w: group %d", ErrMalformed, v)
		}
		if ok {
			e.Group = int32(v)
		}
	case fieldWindow:
		if v, _, rest, err = readInt(p); err == nil {
			e.Window = uint32(max(0, min(v, math.MaxInt32)))
		}
	case fieldLookahead:
		return b.lookahead(e, p)
	case fieldLoraID:
		e.LoraID, e.HasLoraID, rest, err = readInt(p)
	case fieldMedium:
		e.Medium, rest, err = readText(p)
	case fieldLoraName:
		e.LoraName, rest, err = readText(p)
	case fieldSpecKind:
		e.SpecKind, rest, err = readText(p)
	case fieldLocality:
		e.Locality, rest, err = readText(p)
	case fieldOwnership:
		e.Ownership, rest, err = readText(p)
	case fieldCacheSalt:
		e.CacheSalt, rest, err = readText(p)
	default:
		return skipValue(p)
	}
	return rest, err
}

// lookahead parses a list with one entry per hash: the tokens after its block that are part of its
// hash.
func (b *Batch) lookahead(e *Event, p []byte) ([]byte, error) {
	n, p, err := arrayHeader(p)
	if err != nil {
		return p, err
	}
	start := len(b.ahead)
	for ; n > 0; n-- {
		if b.ahead, p, err = appendTokens(b.ahead, p); err != nil {
			return p, err
		}
	}
	e.Lookahead = b.ahead[start:len(b.ahead):len(b.ahead)]
	return p, nil
}

func (b *Batch) hashList(e *Event, p []byte) ([]byte, error) {
	n, p, err := arrayHeader(p)
	if err != nil {
		return p, err
	}
	if len(b.hashes)+n > maxHashes {
		return p, ErrTooLarge
	}
	start := len(b.hashes)
	for ; n > 0; n-- {
		var h block.EngineHash
		if h, p, err = readHash(p); err != nil {
			return p, err
		}
		b.hashes = append(b.hashes, h)
	}
	e.Hashes = b.hashes[start:len(b.hashes):len(b.hashes)]
	return p, nil
}

// extraKeys reads a list with one entry per hash: nil, or a list of keys.
func (b *Batch) extraKeys(e *Event, p []byte) ([]byte, error) {
	if len(p) >= 2 && p[0] == mpFixArray|1 && p[1] == mpNil { // one block without keys, the common case
		return p[2:], nil
	}
	n, p, err := arrayHeader(p)
	if err != nil {
		return p, err
	}
	start := len(b.extra)
	for i := range n {
		if rest, ok := takeNil(p); ok {
			p = rest
			continue
		}
		var keys int
		if keys, p, err = arrayHeader(p); err != nil {
			return p, err
		}
		for ; keys > 0; keys-- {
			if len(b.extra) == maxExtra {
				return p, ErrTooLarge
			}
			k := ExtraKey{Block: uint32(i)}
			if p, err = k.read(p); err != nil {
				return p, err
			}
			b.extra = append(b.extra, k)
		}
	}
	e.Extra = b.extra[start:len(b.extra):len(b.extra)]
	return p, nil
}

func (k *ExtraKey) read(p []byte) (rest []byte, err error) {
	switch msgp.NextType(p) {
	case msgp.StrType:
		k.Kind = ExtraString
		k.Value, rest, err = msgp.ReadStringZC(p)
		return rest, err
	case msgp.BinType:
		k.Kind = ExtraBytes
		k.Value, rest, err = msgp.ReadBytesZC(p)
		return rest, err
	case msgp.ArrayType:
		if rest, ok := k.pair(p); ok {
			return rest, nil
		}
		if rest, ok := k.tagged(p); ok {
			return rest, nil
		}
	case msgp.MapType:
		if rest, ok := k.typed(p); ok {
			return rest, nil
		}
	}
	k.Kind = ExtraOther
	rest, err = skipValue(p)
	if err == nil {
		k.Value = p[:len(p)-len(rest)]
	}
	return rest, err
}

// pair reads [identifier, offset].
func (k *ExtraKey) pair(p []byte) ([]byte, bool) {
	n, p, err := arrayHeader(p)
	if err != nil || n != 2 || msgp.NextType(p) != msgp.StrType {
		return p, false
	}
	id, p, err := msgp.ReadStringZC(p)
	if err != nil {
		return p, false
	}
	offset, ok, p, err := readInt(p)
	if err != nil || !ok {
		return p, false
	}
	k.Kind, k.Value, k.Offset = ExtraPair, id, offset
	return p, true
}

// Names of a typed cache salt among extra keys.
const (
	tagSalt  = "cache_salt"   // ["cache_salt", salt]
	typeSalt = "CacheSaltKey" // {"type": "CacheSaltKey", "salt": salt}
)

// tagged parses a salt after its tag.
func (k *ExtraKey) tagged(p []byte) ([]byte, bool) {
	n, p, err := arrayHeader(p)
	if err != nil || n != 2 || msgp.NextType(p) != msgp.StrType {
		return p, false
	}
	tag, p, err := msgp.ReadStringZC(p)
	if err != nil || string(tag) != tagSalt || msgp.NextType(p) != msgp.StrType {
		return p, false
	}
	salt, p, err := msgp.ReadStringZC(p)
	k.Kind, k.Value = ExtraString, salt
	return p, err == nil
}

// typed parses a salt in a map with its type.
func (k *ExtraKey) typed(p []byte) ([]byte, bool) {
	n, p, err := mapHeader(p)
	if err != nil {
		return p, false
	}
	var kind, salt []byte
	for ; n > 0; n-- {
		if msgp.NextType(p) != msgp.StrType {
			return p, false
		}
		var name []byte
		if name, p, err = msgp.ReadStringZC(p); err != nil {
			return p, false
		}
		field := &kind
		switch string(name) {
		case "type":
		case "salt":
			field = &salt
		default:
			if p, err = skipValue(p); err != nil {
				return p, false
			}
			continue
		}
		if msgp.NextType(p) != msgp.StrType {
			return p, false
		}
		if *field, p, err = msgp.ReadStringZC(p); err != nil {
			return p, false
		}
	}
	if string(kind) != typeSalt || salt == nil {
		return p, false
	}
	k.Kind, k.Value = ExtraString, salt
	return p, true
}
