package translate

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Marks that are hashed below a block's own key. They make the block's non-text content part of its
// key and of all later keys, so that no text of the block's length has that key.
var (
	markUnrendered = []byte("\xffunrendered")
	markPair       = []byte("\xffmedia\x00")
	markString     = []byte("\xffkey\x00")
	markBytes      = []byte("\xffembeds\x00")
	markOther      = []byte("\xffother\x00")
)

// rootCache caches the last root: most streams have one adapter and no salt.
type rootCache struct {
	valid       bool
	lora        []byte
	salt        []byte
	key         block.Key
	hasID       bool
	id          int64
	adapterName string
}

// root returns the root key for an event without a parent: model, adapter and salt.
func (t *Translator) root(e *decode.Event) block.Key {
	salt := saltOf(e)
	r := &t.roots
	if r.valid && r.hasID == e.HasLoraID && r.id == e.LoraID && bytes.Equal(r.lora, e.LoraName) && bytes.Equal(r.salt, salt) {
		return r.key
	}
	if !r.valid || r.hasID != e.HasLoraID || r.id != e.LoraID || !bytes.Equal(r.lora, e.LoraName) {
		r.adapterName = t.adapter(e)
	}
	r.lora, r.salt = append(r.lora[:0], e.LoraName...), append(r.salt[:0], salt...)
	r.hasID, r.id = e.HasLoraID, e.LoraID
	r.key = t.opt.Hasher.Root(block.Scope{
		Space: t.space, Model: t.opt.Model, Adapter: r.adapterName, Salt: string(salt),
	})
	r.valid = true
	return r.key
}

// adapter returns the adapter of an event as used in keys. Adapters known only by number are kept
// separate from the base model and from each other, even if the number cannot be mapped.
func (t *Translator) adapter(e *decode.Event) string {
	switch {
	case len(e.LoraName) > 0:
		if t.opt.Adapter != nil {
			return t.opt.Adapter(string(e.LoraName))
		}
		return string(e.LoraName)
	case e.HasLoraID && e.LoraID != 0:
		id := strconv.FormatInt(e.LoraID, 10)
		if t.opt.Adapter != nil {
			return t.opt.Adapter(id)
		}
		return "\xfflora_id:" + id
	default:
		return ""
	}
}

// saltOf returns the cache salt of an event without a parent: SGLang's own field, or the last
// string of the first block's extra keys that is not the adapter.
func saltOf(e *decode.Event) []byte {
	if e.CacheSalt != nil {
		return e.CacheSalt
	}
	if i := saltIndex(e); i >= 0 {
		return e.Extra[i].Value
	}
	return nil
}

// saltIndex returns the index of the salt. The adapter precedes it, so the second of two equal
// strings is the salt.
func saltIndex(e *decode.Event) int {
	found, adapter := -1, false
	for i, k := range e.Extra {
		if k.Block != 0 {
			break
		}
		if k.Kind != decode.ExtraString {
			continue
		}
		if !adapter && bytes.Equal(k.Value, e.LoraName) {
			adapter = true
			continue
		}
		found = i
	}
	return found
}

// mixExtra returns the key of a block with extra key k in addition to its text. The adapter and,
// for a root block, the salt are already in the root.
func (t *Translator) mixExtra(key block.Key, e *decode.Event, k decode.ExtraKey, root bool) block.Key {
	mark := markOther
	switch k.Kind {
	case decode.ExtraString:
		if bytes.Equal(k.Value, e.LoraName) {
			return key
		}
		if root && k.Block == 0 && e.CacheSalt == nil && bytes.Equal(k.Value, saltOf(e)) {
			return key
		}
		mark = markString
	case decode.ExtraPair:
		mark = markPair
	case decode.ExtraBytes:
		mark = markBytes
	}
	at := len(t.text)
	t.text = append(append(t.text, mark...), k.Value...)
	if k.Kind == decode.ExtraPair {
		t.text = binary.LittleEndian.AppendUint64(t.text, uint64(k.Offset))
	}
	key = t.opt.Hasher.Child(key, t.text[at:])
	t.text = t.text[:at]
	return key
}
