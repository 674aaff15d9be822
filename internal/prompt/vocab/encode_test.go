package vocab

import (
	"slices"
	"testing"
)

// diff compares Encode and Prepare with the reference.
func diff(t *testing.T, v *Vocab, texts []string, want [][]uint32) (bad int) {
	t.Helper()
	for i, text := range texts {
		got := v.Encode(nil, []byte(text))
		if !slices.Equal(got, want[i]) {
			if bad++; bad <= 5 {
				t.Errorf("%q\n got %v\nwant %v", text, show(v, got), show(v, want[i]))
			}
			continue
		}
		space, ok := v.AppendTokens(nil, got)
		if !ok {
			t.Fatalf("%q: an id of %v does not decode", text, got)
		}
		if prepared := v.Prepare(nil, []byte(text)); string(prepared) != string(space) {
			if bad++; bad <= 5 {
				t.Errorf("%q: prepared as %q, its tokens spell %q", text, prepared, space)
			}
		}
		if again := v.EncodePrepared(nil, space); !slices.Equal(again, got) {
			if bad++; bad <= 5 {
				t.Errorf("%q: prepared text %q encodes to %v, want %v", text, space, show(v, again), show(v, got))
			}
		}
	}
	return bad
}

func show(v *Vocab, ids []uint32) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		tok, _ := v.AppendToken(nil, id)
		out[i] = string(tok)
	}
	return out
}

func TestEncodeRealModels(t *testing.T) {
	ref := newReference(t)
	texts := append(hardStrings(1, 2500, 12), randomRunes(1, 500, 40)...)
	texts = append(texts, "")
	for _, name := range realModels {
		t.Run(name, func(t *testing.T) {
			v, file := realModel(t, name)
			if !v.CanEncode() {
				t.Fatalf("no encoding: %v", v.Notes())
			}
			bad := diff(t, v, texts, ref.encode(file, texts, false))
			t.Logf("%d of %d texts differ", bad, len(texts))
		})
	}
}
