package value

import (
	"errors"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzSplit splits arbitrary documents. The rest and the separated members must together equal the
// document.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[1,{"a":2}],"c":"x\"","a":3}`, ` { "b" : null , "\u0061" : "\\" } `, `{}`, `{"a":}`, `{"a" 1}`, `[1]`, `{"a":[1,2],}`} {
		f.Add([]byte(s))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, doc []byte) {
		rest, parts, err := Split(doc, "a", "b")
		whole, e := new(Decoder).Decode(doc)
		if e != nil || whole.Dict() == nil {
			return // separated values are not validated yet
		}
		if err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		got, err := new(Decoder).Decode(rest)
		if err != nil || got.Dict() == nil {
			t.Fatalf("%q: %q is left: %v", doc, rest, err)
		}
		for key, raw := range parts {
			v, err := new(Decoder).Decode(raw)
			if errors.Is(err, ErrBounds) {
				return // a short document may hold less
			}
			if err != nil {
				t.Fatalf("%q: %s is %q: %v", doc, key, raw, err)
			}
			got.Dict().Set(key, v)
			if v.Kind() == KindList {
				n := 0
				if err := Elements(raw, func([]byte) error { n++; return nil }); err != nil || n != len(v.Items()) {
					t.Fatalf("%q: %d elements, %v, want %d", raw, n, err, len(v.Items()))
				}
			}
		}
		whole.Dict().Range(func(key string, v Value) bool {
			if w, ok := got.Dict().Get(key); !ok && v.Kind() != KindNone || ok && oneLine(w) != oneLine(v) {
				t.Fatalf("%q: %q is %s, want %s", doc, key, w.Text(), v.Text())
			}
			return true
		})
	})
}

// oneLine returns v as one line of JSON.
func oneLine(v Value) string {
	out, _ := PythonStyle().Append(nil, v)
	return string(out)
}
