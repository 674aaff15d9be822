package kvtransfer

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// copied is a simple implementation of With.
func copied(o *Object, edits []Edit) []byte {
	out := append([]byte(nil), o.text[:bytes.IndexByte(o.text, '{')+1]...)
	done := map[int]bool{}
	var members [][]byte
	for _, m := range o.members {
		e := -1
		for k := range edits {
			if edits[k].Key == m.key {
				e = k
			}
		}
		if e < 0 {
			members = append(members, o.text[m.start:m.end])
		} else if edits[e].Value != nil && !done[e] {
			done[e] = true
			members = append(members, bytes.Join([][]byte{o.text[m.start:m.value], edits[e].Value}, nil))
		}
	}
	for k, e := range edits {
		if e.Value != nil && !done[k] {
			key, _ := json.Marshal(e.Key)
			members = append(members, bytes.Join([][]byte{key, e.Value}, []byte{':'}))
		}
	}
	return append(append(out, bytes.Join(members, comma)...), '}')
}

// TestPieces: joined pieces equal a field-by-field copy, for any white space and any edits, and
// the object's own text is unchanged.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := rapid.SampledFrom([]string{"", " ", "\n\t"})
		name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		text := space.Draw(t, "s") + "{"
		for i := range rapid.IntRange(0, 6).Draw(t, "members") {
			if i > 0 {
				text += ","
			}
			text += space.Draw(t, "s") + `"` + name.Draw(t, "name") + `"` + space.Draw(t, "s") + ":" + space.Draw(t, "s") + rapid.SampledFrom([]string{"1", `"x,}"`, "[{}]"}).Draw(t, "value") + space.Draw(t, "s")
		}
		text += space.Draw(t, "s") + "}" + space.Draw(t, "s")
		o, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(text, err)
		}
		var edits []Edit
		for range rapid.IntRange(0, 4).Draw(t, "edits") {
			edits = append(edits, Edit{name.Draw(t, "name"), rapid.SampledFrom([][]byte{nil, []byte("2"), []byte("{}")}).Draw(t, "new")})
		}
		p := o.Pieces(edits...)
		if want := copied(&o, edits); !bytes.Equal(p.Join(), want) || p.Len() != len(want) || string(o.Text()) != text {
			t.Fatalf("%q with %v: %q, want %q", text, edits, p, want)
		}
	})
}

// TestPiecesCopyNothing: a prompt is not copied for the prefill body.
func TestPiecesCopyNothing(t *testing.T) {
	text := []byte(`{"model":"m","prompt":"a long one","max_tokens":9}`)
	o, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if p := Chat.PrefillBody(&o); &p[0][0] != &text[0] || !bytes.HasSuffix(p[0], []byte(`"a long one","max_tokens":`)) {
		t.Errorf("first piece is %q, or a copy", p[0])
	}
}
