package value

import (
	"errors"
	"testing"
)

func TestStyles(t *testing.T) {
	var d Decoder
	v, err := d.Decode([]byte(`{"b":[1,"é\u0001😀"],"a":{},"c":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	sortedKeys, ascii, tight := PythonStyle(), PythonStyle(), Style{Item: ",", Key: ":"}
	sortedKeys.SortKeys, ascii.ASCII = true, true
	for _, c := range []struct {
		style Style
		want  string
	}{
		{PythonStyle(), `{"b": [1, "é\u0001😀"], "a": {}, "c": []}`},
		{sortedKeys, `{"a": {}, "b": [1, "é\u0001😀"], "c": []}`},
		{ascii, `{"b": [1, "\u00e9\u0001\ud83d\ude00"], "a": {}, "c": []}`},
		{tight, `{"b":[1,"é\u0001😀"],"a":{},"c":[]}`},
		{Indented("  "), "{\n  \"b\": [\n    1,\n    \"é\\u0001😀\"\n  ],\n  \"a\": {},\n  \"c\": []\n}"},
	} {
		if got, err := c.style.Append([]byte("x"), v); err != nil || string(got) != "x"+c.want {
			t.Errorf("%+v: got %s, %v; want %s", c.style, got, err, c.want)
		}
	}
}

func TestNoJSON(t *testing.T) {
	if _, err := PythonStyle().Append(nil, Undefined("x")); err == nil {
		t.Error("undefined has JSON")
	}
	deep := None()
	for range maxDepth + 2 {
		deep = List([]Value{deep})
	}
	if _, err := PythonStyle().Append(nil, deep); !errors.Is(err, ErrBounds) {
		t.Errorf("a deep list: %v", err)
	}
}
