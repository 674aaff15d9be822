package kvtransfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

func TestWith(t *testing.T) {
	for _, c := range []struct {
		in    string
		edits []Edit
		want  string
	}{
		{`{}`, []Edit{{"a", []byte("1")}}, `{"a":1}`},
		{` { "a" : 1 , "b":[1, {"c":"}"}] } `, nil, ` {"a" : 1,"b":[1, {"c":"}"}]}`},
		{`{"a":1,"b":2,"c":3}`, []Edit{{"b", nil}, {"c", []byte(`"x"`)}, {"d", []byte("[]")}}, `{"a":1,"c":"x","d":[]}`},
		{`{"a":1,"a":2}`, []Edit{{"a", []byte("3")}}, `{"a":3}`},
		{`{"n":12345678901234567890,"t":"\u003c<"}`, []Edit{{"x", []byte("0")}}, `{"n":12345678901234567890,"t":"\u003c<","x":0}`},
	} {
		o, err := Parse([]byte(c.in))
		if err != nil {
			t.Fatal(c.in, err)
		}
		if got := string(o.With(c.edits...)); got != c.want {
			t.Errorf("%s: %s, want %s", c.in, got, c.want)
		}
	}
}

func TestGet(t *testing.T) {
	o, err := Parse([]byte(`{"a":1,"b":{"c":[1,"x",{"d":null}]},"a":{"z":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	if string(o.Get("a")) != `{"z":2}` || o.Count("a") != 2 || o.Get("q") != nil {
		t.Error("Get() did not return the last of two fields")
	}
	list, ok := Elements(Find(o.Text(), "b", "c"))
	if !ok || len(list) != 3 || string(list[1]) != `"x"` || !IsNull(Find(list[2], "d")) {
		t.Errorf("elements %q %v", list, ok)
	}
	for in, want := range map[string]error{
		`[]`: ErrObject, `{"a":}`: ErrSyntax, `{"a":1`: ErrSyntax, `{"a":[}]}`: ErrSyntax, `{"a" 1}`: ErrSyntax, `{"a":1}x`: ErrSyntax,
		`{"a":"`: ErrSyntax, `{"a":1,}`: ErrSyntax, "": ErrObject,
		`{"a":` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + `}`: ErrDepth,
	} {
		if _, err := Parse([]byte(in)); !errors.Is(err, want) {
			t.Errorf("%.40s: %v, want %v", in, err, want)
		}
	}
}

// FuzzParse: everything that encoding/json accepts is parsed, and an edit changes only its field.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,2,{"b":"c"}],"d":null}`, `{"\u0061":1e5}`, `{"a":"\""}`, `[`, `{"a":tru}`} {
		f.Add([]byte(s))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, in []byte) {
		o, err := Parse(in)
		var m map[string]json.RawMessage
		valid := json.Unmarshal(in, &m) == nil && m != nil
		if valid && err != nil && !errors.Is(err, ErrDepth) && !errors.Is(err, ErrMany) {
			t.Fatalf("valid JSON, but %v: %q", err, in)
		}
		if !valid || err != nil {
			return
		}
		out := o.With(Edit{"added", []byte("17")})
		var after map[string]json.RawMessage
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		for k, v := range m {
			if k != "added" && !bytes.Equal(v, after[k]) {
				t.Fatalf("%q was %s, is %s", k, v, after[k])
			}
		}
		if string(after["added"]) != "17" {
			t.Fatalf("field was not set: %q", out)
		}
	})
}

// TestQuoted scans all texts of up to eight quotes, backslashes and letters. A string ends at the
// first quote after an even number of backslashes.
func TestQuoted(t *testing.T) {
	end := func(text []byte) int {
		for i := 1; i < len(text); i++ {
			switch text[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
		return -1
	}
	text := []byte{'"'}
	var all func()
	all = func() {
		s := scanner{text: text}
		want := end(text)
		if err := s.quoted(); (err != nil) != (want < 0) || err == nil && s.at != want {
			t.Errorf("%s: %d, %v, want %d", text, s.at, err, want)
		}
		if len(text) == 9 {
			return
		}
		for _, c := range []byte(`"\a`) {
			text = append(text, c)
			all()
			text = text[:len(text)-1]
		}
	}
	all()
}
