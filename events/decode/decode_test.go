package decode

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/grapevine-epp/grapevine/events/eventtest"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/tinylib/msgp/msgp"
)

// TestVectors holds Decode against every payload of the golden file, read from
// its "decoded" side by code that shares nothing with the decoder.
func TestVectors(t *testing.T) {
	v := eventtest.Load(t)
	if len(v.Payloads) != 19 {
		t.Fatalf("%d payloads", len(v.Payloads))
	}
	for _, c := range v.Payloads {
		t.Run(c.Name, func(t *testing.T) {
			var b Batch
			if err := b.Decode(eventtest.Unhex(t, c.Hex)); err != nil {
				t.Fatal(err)
			}
			want := expect(t, c.Decoded)
			if diff := cmp.Diff(want, describe(&b)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if b.Malformed != 0 {
				t.Errorf("%d malformed events", b.Malformed)
			}
		})
	}
}

// describe prints the decoded events, one per line.
func describe(b *Batch) []string {
	out := []string{fmt.Sprintf("ts %.2f rank %d unknown %d", b.Time, b.Rank, b.Unknown)}
	for _, e := range b.Events {
		var s strings.Builder
		switch e.Kind {
		case AllBlocksCleared:
			s.WriteString("clear")
		case BlockRemoved:
			fmt.Fprintf(&s, "removed %d", e.Hashes)
		case BlockStored:
			fmt.Fprintf(&s, "stored %d tokens %d size %d", e.Hashes, e.Tokens, e.BlockSize)
			if e.HasParent {
				fmt.Fprintf(&s, " parent %d", e.Parent)
			}
			if e.HasLoraID {
				fmt.Fprintf(&s, " lora_id %d", e.LoraID)
			}
		}
		for _, f := range []struct {
			name string
			v    []byte
		}{{"medium", e.Medium}, {"lora", e.LoraName}, {"kind", e.SpecKind}, {"locality", e.Locality},
			{"ownership", e.Ownership}, {"salt", e.CacheSalt}} {
			if f.v != nil {
				fmt.Fprintf(&s, " %s %s", f.name, f.v)
			}
		}
		if e.Group != NoGroup {
			fmt.Fprintf(&s, " group %d", e.Group)
		}
		for _, k := range e.Extra {
			switch k.Kind {
			case ExtraString:
				fmt.Fprintf(&s, " extra[%d] %s", k.Block, k.Value)
			case ExtraPair:
				fmt.Fprintf(&s, " extra[%d] (%s %d)", k.Block, k.Value, k.Offset)
			default:
				fmt.Fprintf(&s, " extra[%d] %x", k.Block, k.Value)
			}
		}
		out = append(out, s.String())
	}
	return out
}

// expect returns the expected output of describe from the JSON form of a batch.
func expect(tb testing.TB, text json.RawMessage) []string {
	tb.Helper()
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	var batch any
	if err := dec.Decode(&batch); err != nil {
		tb.Fatal(err)
	}
	var ts, rank any
	var list []any
	switch batch := batch.(type) {
	case map[string]any:
		ts, rank, list = batch["ts"], batch["data_parallel_rank"], batch["events"].([]any)
	case []any:
		ts, list = batch[0], batch[1].([]any)
		if len(batch) > 2 {
			rank = batch[2]
		}
	}
	if rank == nil {
		rank = -1
	}
	unknown := 0
	var out []string
	for _, e := range list {
		line := expectEvent(e)
		if line == "" {
			unknown++
			continue
		}
		out = append(out, line)
	}
	return append([]string{fmt.Sprintf("ts %v rank %v unknown %d", ts, rank, unknown)}, out...)
}

func expectEvent(e any) string {
	m, ok := e.(map[string]any)
	if list, isList := e.([]any); isList {
		m, ok = map[string]any{"type": list[0]}, true
		names := []string{"", "block_hashes", "medium", "group_idx"}
		if list[0] == "BlockStored" {
			names = []string{"", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
				"lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"}
		}
		for i := 1; i < len(list); i++ {
			if extra, isMap := list[i].(map[string]any); isMap && i == 7 {
				for k, v := range extra {
					m[k] = v
				}
				continue
			}
			m[names[i]] = list[i]
		}
	}
	if !ok {
		return ""
	}
	var s string
	switch m["type"] {
	case "AllBlocksCleared":
		s = "clear"
	case "BlockRemoved":
		s = "removed " + jsonHashes(m["block_hashes"])
	case "BlockStored":
		s = fmt.Sprintf("stored %s tokens %s size %v", jsonHashes(m["block_hashes"]), jsonTokens(m["token_ids"]), m["block_size"])
		if p := m["parent_block_hash"]; p != nil {
			s += " parent " + jsonHash(p)
		}
		if l := m["lora_id"]; l != nil {
			s += fmt.Sprintf(" lora_id %v", l)
		}
	default:
		return ""
	}
	for _, f := range [][2]string{{"medium", "medium"}, {"lora", "lora_name"}, {"kind", "kv_cache_spec_kind"},
		{"locality", "locality"}, {"ownership", "ownership"}, {"salt", "cache_salt"}, {"group", "group_idx"}} {
		if v := m[f[1]]; v != nil {
			s += fmt.Sprintf(" %s %v", f[0], v)
		}
	}
	keys, _ := m["extra_keys"].([]any)
	for i, block := range keys {
		list, _ := block.([]any)
		for _, k := range list {
			switch k := k.(type) {
			case string:
				s += fmt.Sprintf(" extra[%d] %s", i, k)
			case []any:
				s += fmt.Sprintf(" extra[%d] (%v %v)", i, k[0], k[1])
			case map[string]any:
				s += fmt.Sprintf(" extra[%d] %v", i, k["hex"])
			}
		}
	}
	return s
}

func jsonHash(v any) string {
	if m, ok := v.(map[string]any); ok {
		b, _ := hex.DecodeString(m["hex"].(string))
		return fmt.Sprint(hashOfBytes(b))
	}
	n := v.(json.Number)
	if i, err := n.Int64(); err == nil {
		return fmt.Sprint(uint64(i))
	}
	return n.String()
}

func jsonHashes(v any) string {
	var out []string
	for _, h := range v.([]any) {
		out = append(out, jsonHash(h))
	}
	return "[" + strings.Join(out, " ") + "]"
}

func jsonTokens(v any) string {
	var out []string
	for _, t := range v.([]any) {
		if pair, ok := t.([]any); ok {
			t = pair[0]
		}
		out = append(out, t.(json.Number).String())
	}
	return "[" + strings.Join(out, " ") + "]"
}

func TestHashNormalisation(t *testing.T) {
	for _, c := range []struct {
		hex  string
		want uint64
	}{
		{"05", 5},
		{"cfb0147556276afc9c", 12687895063098490012},
		{"d3ffffffffffffffff", 1<<64 - 1},
		{"ff", 1<<64 - 1},
		{"d080", 1<<64 - 128},
		{"d1ff00", 1<<64 - 256},
		{"cdffff", 65535},
		{"c40401020304", 0x01020304},
		{"c40a00010203040506070809", 0x0203040506070809},
		{"c420d830de3d42c00f25a2949b5d12d98642664a44872c1614c5b0147556276afc9c", 12687895063098490012},
	} {
		h, rest, err := readHash(eventtest.Unhex(t, c.hex))
		if err != nil || uint64(h) != c.want || len(rest) != 0 {
			t.Errorf("%s: %d, %d bytes left, %v; want %d", c.hex, h, len(rest), err, c.want)
		}
	}
	for _, bad := range []string{"", "c0", "a161", "cf00", "c400", "cb0000000000000000", "90"} {
		if _, _, err := readHash(eventtest.Unhex(t, bad)); err == nil {
			t.Errorf("%q is a hash", bad)
		}
	}
}

// TestLenient is the list of kv-event oddities that must cost one event at
// most.
func TestLenient(t *testing.T) {
	wipe := []byte("\x91\xb0AllBlocksCleared")
	batch := func(events ...[]byte) []byte {
		p := []byte{0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x90 | byte(len(events))}
		for _, e := range events {
			p = append(p, e...)
		}
		return append(p, 0)
	}
	for name, c := range map[string]struct {
		payload            []byte
		events, bad, other int
	}{
		"extra array elements":   {batch([]byte("\x95\xacBlockRemoved\x91\x05\xa3GPU\x00\xc3"), wipe), 2, 0, 0},
		"missing elements":       {batch([]byte("\x91\xacBlockRemoved"), wipe), 2, 0, 0},
		"unknown event":          {batch([]byte("\x93\xadBlockInactive\x91\x05\x81\xa1x\xc0"), wipe), 1, 0, 1},
		"unknown event map":      {batch([]byte("\x82\xa4type\xadBlockInactive\xacblock_hashes\xa1x"), wipe), 1, 0, 1},
		"type last":              {batch([]byte("\x82\xacblock_hashes\x91\x05\xa4type\xacBlockRemoved"), wipe), 2, 0, 0},
		"unknown key":            {batch([]byte("\x82\xa4type\xb0AllBlocksCleared\xa6origin\x92\x01\x80"), wipe), 2, 0, 0},
		"hash is a float":        {batch([]byte("\x92\xacBlockRemoved\x91\xcb\x00\x00\x00\x00\x00\x00\x00\x00"), wipe), 1, 1, 0},
		"token is negative":      {batch([]byte("\x94\xabBlockStored\x91\x05\xc0\x91\xff"), wipe), 1, 1, 0},
		"token over 32 bits":     {batch([]byte("\x94\xabBlockStored\x91\x05\xc0\x91\xcf\x00\x00\x00\x01\x00\x00\x00\x00"), wipe), 1, 1, 0},
		"event is a number":      {batch([]byte{7}, wipe), 1, 1, 0},
		"event is empty":         {batch([]byte{0x90}, []byte{0x80}, wipe), 1, 2, 0},
		"block size is negative": {batch([]byte("\x95\xabBlockStored\x91\x05\xc0\x91\x01\xff"), wipe), 1, 1, 0},
		"group is a string":      {batch([]byte("\x94\xacBlockRemoved\x91\x05\xc0\xa1x"), wipe), 1, 1, 0},
		"integer ts, no rank":    {append([]byte{0x92, 5, 0x91}, wipe...), 1, 0, 0},
		"nil events":             {[]byte{0x93, 0xc0, 0xc0, 0xc0}, 0, 0, 0},
		"four elements":          {append(append([]byte{0x94, 5, 0x91}, wipe...), 3, 0xc3), 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var b Batch
			if err := b.Decode(c.payload); err != nil {
				t.Fatal(err)
			}
			if len(b.Events) != c.events || b.Malformed != c.bad || b.Unknown != c.other {
				t.Errorf("%d events, %d malformed, %d unknown; want %d, %d, %d",
					len(b.Events), b.Malformed, b.Unknown, c.events, c.bad, c.other)
			}
		})
	}
}

func TestBrokenBatches(t *testing.T) {
	for _, p := range []string{
		"", "\x05", "\x91\x05", "\x93", "\x93\xc0\xdd\xff\xff\xff\xff", "\x93\xc0\x91\xdd\xff\xff\xff\xff",
		"\x93\xc0\x91\x92\xacBlockRemoved\xdd\xff\xff\xff\xff", "\x83\xa6events\x91",
		"\x93\xc0\x91" + strings.Repeat("\x91", 1000),
	} {
		var b Batch
		if err := b.Decode([]byte(p)); err == nil {
			t.Errorf("%.20q was read", p)
		}
	}
}

// TestDeepNesting: a value nested ten million levels deep is skipped without
// recursion.
func TestDeepNesting(t *testing.T) {
	p := append([]byte("\x93\xc0\x91\x92\xa1x"), strings.Repeat("\x91", 10<<20)...)
	var b Batch
	if err := b.Decode(append(p, 0, 0)); err != nil || b.Unknown != 1 {
		t.Errorf("%v, %d unknown", err, b.Unknown)
	}
}

// TestDecodeMemory bounds the decoded size of a payload of small elements.
func TestDecodeMemory(t *testing.T) {
	p := append([]byte("\x93\xc0\xdd\x00\x10\x00\x00"), strings.Repeat("\x91\xb0AllBlocksCleared", 1<<20)...)
	var b Batch
	if err := b.Decode(p); err == nil {
		t.Error("a million events in one batch were read")
	}
	if len(b.Events) != maxEvents {
		t.Errorf("%d events", len(b.Events))
	}
	if err := b.Decode([]byte("\x92\xc0\x90")); err != nil || cap(b.Events) > keepItems {
		t.Errorf("%v; memory for %d events is kept", err, cap(b.Events))
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	for _, c := range eventtest.Load(t).Payloads {
		p := eventtest.Unhex(t, c.Hex)
		var b Batch
		if n := testing.AllocsPerRun(100, func() { _ = b.Decode(p) }); n != 0 {
			t.Errorf("%s: %v allocations", c.Name, n)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range eventtest.Load(f).Payloads {
		f.Add(eventtest.Unhex(f, c.Hex))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, p []byte) {
		var b Batch
		err := b.Decode(p)
		if err == nil && msgp.NextType(p) != msgp.ArrayType && msgp.NextType(p) != msgp.MapType {
			t.Fatal("read from neither array nor map")
		}
		tokens := 0
		for _, e := range b.Events {
			if e.Kind == 0 {
				t.Fatal("event of no kind")
			}
			tokens += len(e.Tokens)
			for _, k := range e.Extra {
				if len(k.Value) > len(p) {
					t.Fatal("extra key longer than the payload")
				}
			}
		}
		if tokens > len(p) || len(b.hashes) > len(p) || len(b.Events) > len(p) {
			t.Fatalf("%d tokens, %d hashes, %d events from %d bytes", tokens, len(b.hashes), len(b.Events), len(p))
		}
	})
}
