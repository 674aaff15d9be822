package decode

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/grapevine-epp/grapevine/events/eventtest"
	"github.com/tinylib/msgp/msgp"
	"pgregory.net/rapid"
)

// alone returns the events of a batch in array form that can be skipped over.
func alone(payload []byte) (raw [][]byte) {
	n, p, err := arrayHeader(payload)
	if err != nil || n < 2 {
		return nil
	}
	if p, err = skipValue(p); err != nil {
		return nil
	}
	if n, p, err = arrayHeader(p); err != nil {
		return nil
	}
	for ; n > 0; n-- {
		rest, err := skipValue(p)
		if err != nil {
			return raw
		}
		raw, p = append(raw, p[:len(p)-len(rest)]), rest
	}
	return raw
}

func batchOf(events ...[]byte) []byte {
	p := msgp.AppendArrayHeader(msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 2), 1), uint32(len(events)))
	for _, e := range events {
		p = append(p, e...)
	}
	return p
}

// checkShapes decodes events together, so that one may use the shape of another, and each in a
// separate batch, so that it cannot.
func checkShapes(t interface{ Fatalf(string, ...any) }, raw [][]byte) {
	var together, single Batch
	var want []Event
	malformed, unknown := 0, 0
	for _, e := range raw {
		if err := single.Decode(batchOf(e)); err != nil {
			return // a batch that ends early
		}
		malformed, unknown = malformed+single.Malformed, unknown+single.Unknown
		for _, e := range single.Events {
			e.Hashes, e.Tokens, e.Extra = append(e.Hashes[:0:0], e.Hashes...), append(e.Tokens[:0:0], e.Tokens...), append(e.Extra[:0:0], e.Extra...)
			want = append(want, e)
		}
	}
	if err := together.Decode(batchOf(raw...)); err != nil {
		t.Fatalf("%v", err)
	}
	if d := cmp.Diff(want, together.Events, cmpopts.EquateEmpty()); d != "" || malformed != together.Malformed || unknown != together.Unknown {
		t.Fatalf("%d malformed, %d unknown, want %d, %d:\n%s", together.Malformed, together.Unknown, malformed, unknown, d)
	}
}

// TestShapesLaw mixes events that differ in some respect: an event compared with an earlier one
// decodes to the same as a parsed one.
func TestShapesLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var raw [][]byte
		for range rapid.IntRange(2, 12).Draw(t, "events") {
			if n := len(raw); n > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
				raw = append(raw, raw[rapid.IntRange(0, n-1).Draw(t, "which")])
				continue
			}
			raw = append(raw, drawEvent(t))
		}
		checkShapes(t, raw)
	})
}

func drawEvent(t *rapid.T) []byte {
	hash := func(p []byte) []byte {
		switch rapid.IntRange(0, 7).Draw(t, "hash") {
		case 0:
			return msgp.AppendBytes(p, []byte("1234567"))
		case 1:
			return msgp.AppendInt64(p, -1<<40)
		case 2:
			return msgp.AppendInt(p, 5)
		default:
			return msgp.AppendUint64(p, rapid.Uint64Min(1<<33).Draw(t, "value"))
		}
	}
	list := func(p []byte) []byte {
		n := rapid.SampledFrom([]int{0, 1, 1, 1, 2, 16}).Draw(t, "hashes")
		if rapid.IntRange(0, 7).Draw(t, "wide") == 0 {
			p = append(p, 0xdc, 0, byte(n))
		} else {
			p = msgp.AppendArrayHeader(p, uint32(n))
		}
		for range n {
			p = hash(p)
		}
		return p
	}
	tokens := func(p []byte) []byte {
		n := rapid.IntRange(0, 3).Draw(t, "tokens")
		p = msgp.AppendArrayHeader(p, uint32(n))
		for range n {
			p = msgp.AppendUint32(p, rapid.SampledFrom([]uint32{7, 300, 70_000}).Draw(t, "id"))
		}
		return p
	}
	text := func(s ...string) func(p []byte) []byte {
		return func(p []byte) []byte { return msgp.AppendString(p, rapid.SampledFrom(s).Draw(t, "text")) }
	}
	number := func(p []byte) []byte { return msgp.AppendInt(p, rapid.IntRange(0, 2).Draw(t, "number")) }
	extra := func(p []byte) []byte {
		if p = msgp.AppendArrayHeader(p, 1); rapid.Bool().Draw(t, "plain") {
			return msgp.AppendNil(p)
		}
		return msgp.AppendString(msgp.AppendArrayHeader(p, 1), "salt")
	}
	names := []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"}
	values := []func([]byte) []byte{list, hash, tokens, number, number, text("GPU", "CPU"), text("a", "b"), extra, number, text("full_attention", "mamba")}
	kind := rapid.SampledFrom([]string{nameStored, nameStored, nameRemoved, nameCleared, "Other"}).Draw(t, "kind")
	value := func(p []byte, i int) []byte {
		if rapid.IntRange(0, 5).Draw(t, "nil") == 0 {
			return msgp.AppendNil(p)
		}
		return values[i](p)
	}
	if rapid.Bool().Draw(t, "array") {
		n := rapid.IntRange(0, len(values)).Draw(t, "fields")
		p := msgp.AppendString(msgp.AppendArrayHeader(nil, uint32(1+n)), kind)
		for i := range n {
			p = value(p, i)
		}
		return p
	}
	order := []int{0, 1, 2, 3, 5, 7}
	if rapid.IntRange(0, 3).Draw(t, "other order") == 0 {
		order = rapid.SliceOfN(rapid.IntRange(0, len(values)-1), 0, 8).Draw(t, "order")
	}
	p := msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, uint32(1+len(order))), keyType), kind)
	for _, i := range order {
		p = value(msgp.AppendString(p, names[i]), i)
	}
	return p
}

// TestShapesAreUsed: the law test would be meaningless if no event were ever compared.
func TestShapesAreUsed(t *testing.T) {
	var b Batch
	if err := b.Decode(eventtest.StorePayload(3, 2)); err != nil {
		t.Fatal(err)
	}
	raw := alone(eventtest.StorePayload(3, 2))
	if rest, ok := b.alike(new(Event), raw[2], &b.shapes[0]); !ok || len(rest) > 0 || len(raw) != 3 {
		t.Errorf("an event like the one before was not recognised: %+v", b.shapes)
	}
}
