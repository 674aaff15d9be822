package decode

import (
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// A salt that names its type, or stands behind a tag, is read as the string that older
// engines send. Other keys of these forms keep their encoding.
func TestTypedExtraKeys(t *testing.T) {
	for _, c := range []struct {
		name  string
		key   any
		kind  ExtraKind
		value string
	}{
		{"string", "s1", ExtraString, "s1"},
		{"typed", map[string]any{"type": "CacheSaltKey", "salt": "s1"}, ExtraString, "s1"},
		{"typed, with more", map[string]any{"v": []any{1, 2}, "salt": "s1", "type": "CacheSaltKey"}, ExtraString, "s1"},
		{"tagged", []any{"cache_salt", "s1"}, ExtraString, "s1"},
		{"another type", map[string]any{"type": "LoRAKey", "name": "s1"}, ExtraOther, ""},
		{"a salt of no type", map[string]any{"salt": "s1"}, ExtraOther, ""},
		{"a salt that is no text", map[string]any{"type": "CacheSaltKey", "salt": 3}, ExtraOther, ""},
		{"another tag", []any{"lora", "s1"}, ExtraOther, ""},
		{"a pair", []any{"image", 3}, ExtraPair, "image"},
	} {
		event := map[string]any{"type": "BlockStored", "block_hashes": []any{1}, "parent_block_hash": nil, "token_ids": []any{1, 2},
			"block_size": 2, "medium": "GPU", "extra_keys": []any{[]any{c.key}}, "event_version": 1}
		p, err := msgp.AppendIntf(nil, []any{1.5, []any{event}, 0})
		if err != nil {
			t.Fatal(err)
		}
		var b Batch
		if err := b.Decode(p); err != nil || b.Malformed != 0 || len(b.Events) != 1 || len(b.Events[0].Extra) != 1 {
			t.Fatalf("%s: %v, %d malformed, events %+v", c.name, err, b.Malformed, b.Events)
		}
		k := b.Events[0].Extra[0]
		if k.Kind != c.kind || c.kind != ExtraOther && string(k.Value) != c.value {
			t.Errorf("%s: kind %d, %q; want %d, %q", c.name, k.Kind, k.Value, c.kind, c.value)
		}
	}
}
