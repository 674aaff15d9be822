package value

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

func TestDecode(t *testing.T) {
	cases := []struct{ in, want string }{
		{`{"a":1,"b":2,"a":3}`, `{"a": 3, "b": 2}`},
		{` [1 , -2.5e3,1E2, 0, -0, 123456789012345678901234567890 ] `, `[1, -2500.0, 100.0, 0, 0, 123456789012345678901234567890]`},
		{`["\u00e9\n\t\"\\\/\b\f\r", "\ud83d\ude00", "\ud83d", "\ude00x", "\ud83dA", "\ud83d\u0041"]`, "[\"é\\n\\t\\\"\\\\/\\b\\f\\r\", \"😀\", \"\ufffd\", \"\ufffdx\", \"\ufffdA\", \"\ufffdA\"]"},
		{`[true,false,null,"",{},[]]`, `[true, false, null, "", {}, []]`},
		{`[NaN, Infinity, -Infinity]`, `[NaN, Infinity, -Infinity]`},
		{`{"\u0061":"x","a":"y"}`, `{"a": "y"}`},
		{`"\\"`, `"\\"`}, {`"\\\""`, `"\\\""`}, {`"a\\"`, `"a\\"`},
	}
	var d Decoder
	for _, c := range cases {
		v, err := d.Decode([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if got, err := PythonStyle().Append(nil, v); err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.in, got, err, c.want)
		}
	}
	for _, bad := range []string{``, `{`, `[`, `[1`, `[1,]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `"`, `"\`, `"\x"`, `"\u12"`, `01`, `-`, `1.2.3`, `tru`, `[1 2]`, `1 2`, `{"a":1 "b":2}`, `+1`, `.5`, `--1`, strings.Repeat("[", 600)} {
		if v, err := d.Decode([]byte(bad)); err == nil {
			t.Errorf("%.20s: no error but %v", bad, v.Kind())
		} else if !errors.Is(err, ErrJSON) && !errors.Is(err, ErrBounds) {
			t.Errorf("%.20s: %v wraps no sentinel", bad, err)
		}
	}
}

func TestDecodeObject(t *testing.T) {
	in := `{"skip":{"x":[1,"]}",{"y":"\\\""}]},"n":1.5,"keep":["a\nb"],"t":true,"s":"\"","keep":["c"]}`
	var d Decoder
	obj, err := d.Object([]byte(in), func(k string) bool { return k == "keep" })
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := PythonStyle().Append(nil, FromDict(obj)); string(got) != `{"keep": ["c"]}` {
		t.Errorf("got %s", got)
	}
	for _, bad := range []string{`[]`, `1`, `{"x":"a`, `{"x":[`, `{"x":{}`, `{"x":1}}`} {
		if _, err := d.Object([]byte(bad), func(string) bool { return false }); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

// TestDecodeReuse checks that a reused decoder returns the strings of its current document.
func TestDecodeReuse(t *testing.T) {
	var d Decoder
	for i, in := range []string{`["a\nb","c"]`, `["longer \t text","x\\"]`, `[]`, `["q\"q"]`} {
		v, err := d.Decode([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if err := json.Unmarshal([]byte(in), &want); err != nil {
			t.Fatal(err)
		}
		for k, it := range v.Items() {
			if it.Str() != want[k] {
				t.Errorf("document %d: %q, want %q", i, it.Str(), want[k])
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x\u00e9\ud83d\ude00"],"b":{"c":null}}`, `["\\\"",""]`, `{"s":"a\u0001\ud83d\ude00 \u4f60","big":123456789012345678901234567890,"fl":[1.0,0.1,1e16,-0.0,5e-324],"msgs":[{"role":"user","content":"U1"}]}`} {
		f.Add([]byte(s))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, in []byte) {
		var d Decoder
		var v Value
		var err error
		if n := allocated(func() { v, err = d.Decode(in) }); n > allowed(len(in)) {
			t.Fatalf("%d bytes for a document of %d", n, len(in))
		}
		var std any
		stdErr := json.Unmarshal(in, &std)
		if stdErr == nil && err != nil && !errors.Is(err, ErrBounds) {
			t.Fatalf("%q: %v, but it is JSON", in, err)
		}
		if _, oerr := d.Object(in, func(k string) bool { return len(k)%2 == 0 }); err == nil && v.Kind() == KindDict && oerr != nil {
			t.Fatalf("%q: %v for some keys, none for all", in, oerr)
		}
		if v, err = d.Decode(in); err != nil {
			return
		}
		out, err := PythonStyle().Append(nil, v)
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		again, err := new(Decoder).Decode(out)
		if err != nil || !meter().Equal(v, again) && !strings.Contains(string(out), "NaN") {
			t.Fatalf("%q: %q does not come back: %v", in, out, err)
		}
	})
}
