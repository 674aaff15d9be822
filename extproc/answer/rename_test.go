package answer

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

var renameCases = []struct{ name, contentType, in, want string }{
	{"completion", typeJSON, `{"id":"model","model":"internal","choices":[{"model":"keep"}]}`, `{"id":"model","model":"chat","choices":[{"model":"keep"}]}`},
	{"spread out", "application/json; charset=utf-8", "{\n  \"model\" :\n \"in\\\"ter\" , \"usage\": {\"model\":\"keep\"}}", "{\n  \"model\" :\n \"chat\" , \"usage\": {\"model\":\"keep\"}}"},
	{"list of models", typeJSON, `[{"model":"keep"}]`, `[{"model":"keep"}]`},
	{"no string", typeJSON, `{"model":null,"x":"internal","model":7}`, `{"model":null,"x":"internal","model":7}`},
	{"text that looks like it", typeJSON, `{"text":"\"model\":\"keep\"","a":["model","keep"],"model":"m"}`, `{"text":"\"model\":\"keep\"","a":["model","keep"],"model":"chat"}`},
	{"escaped key", typeJSON, `{"\\model":"keep","mo\"del":"keep","models":"keep"}`, `{"\\model":"keep","mo\"del":"keep","models":"keep"}`},
	{"metadata of the client", typeJSON, `{"metadata":{"model":"keep"},"response":["model","keep"]}`, `{"metadata":{"model":"keep"},"response":["model","keep"]}`},
	{"stream", typeEvents, "data: {\"model\":\"a\"}\n\ndata: {\"choices\":[],\"model\":\"b\"}\n\ndata: [DONE]\n\n", "data: {\"model\":\"chat\"}\n\ndata: {\"choices\":[],\"model\":\"chat\"}\n\ndata: [DONE]\n\n"},
	{"responses", typeEvents, "event: response.created\r\ndata: {\"type\":\"x\",\"response\":{\"a\":{\"model\":\"keep\"},\"model\":\"a\"}}\r\n\r\n", "event: response.created\r\ndata: {\"type\":\"x\",\"response\":{\"a\":{\"model\":\"keep\"},\"model\":\"chat\"}}\r\n\r\n"},
	{"messages", typeEvents + "; charset=utf-8", "data:{\"message\":{\"model\":\"a\",\"content\":[]}}\n\n", "data:{\"message\":{\"model\":\"chat\",\"content\":[]}}\n\n"},
	{"broken off", typeEvents, "data: {\"model\":\"a\n\ndata: {\"model\":\"b\"}\n\n: {\"model\":\"keep\"}\n", "data: {\"model\":\"chat\"\n\ndata: {\"model\":\"chat\"}\n\n: {\"model\":\"keep\"}\n"},
	{"another type", "text/plain", `{"model":"keep"}`, `{"model":"keep"}`},
	{"empty", typeJSON, `{"model":""}`, `{"model":"chat"}`},
}

// renamed passes a body in pieces of a size.
func renamed(contentType, in string, size int) string {
	var r Rename
	r.Open(contentType, "", "chat")
	var out []byte
	for rest := []byte(in); len(rest) > 0; {
		n := min(size, len(rest))
		out = append(out, r.Write(rest[:n])...)
		rest = rest[n:]
	}
	return string(out)
}

func TestRename(t *testing.T) {
	for _, c := range renameCases {
		for size := 1; size <= len(c.in); size++ {
			if got := renamed(c.contentType, c.in, size); got != c.want {
				t.Fatalf("%s in pieces of %d:\n got %q\nwant %q", c.name, size, got, c.want)
			}
		}
	}
}

func TestRenameLeavesCompressedAlone(t *testing.T) {
	var r Rename
	if r.Open(typeJSON, "gzip", "chat") || r.On() {
		t.Error("a compressed body is not read")
	}
	if p := []byte(`{"model":"m"}`); &r.Write(p)[0] != &p[0] {
		t.Error("it was changed")
	}
}

// TestRenamePassesOn: a piece without a name is not copied.
func TestRenamePassesOn(t *testing.T) {
	var r Rename
	r.Open(typeEvents, "identity", "chat")
	r.Write([]byte("data: {\"model\":\"m\","))
	p := []byte("\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\n")
	if n := testing.AllocsPerRun(100, func() { r.Write(p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzRename: however a body is cut the result is the same, and of a JSON text
// only names change.
func FuzzRename(f *testing.F) {
	for i, c := range renameCases {
		f.Add(c.in, c.contentType == typeJSON, i+1)
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, in string, object bool, size int) {
		contentType := typeEvents
		if object {
			contentType = typeJSON
		}
		whole := renamed(contentType, in, len(in)+1)
		if parts := renamed(contentType, in, max(size%50, 1)); parts != whole {
			t.Fatalf("cut: %q\nwhole: %q", parts, whole)
		}
		var before, after any
		if !object || json.Unmarshal([]byte(in), &before) != nil {
			return
		}
		if err := json.Unmarshal([]byte(whole), &after); err != nil {
			t.Fatalf("%q became %q: %v", in, whole, err)
		}
		blank(before)
		blank(after)
		if d := cmp.Diff(before, after); d != "" {
			t.Error(d)
		}
	})
}

// blank overwrites the strings that may be renamed.
func blank(v any) {
	o, ok := v.(map[string]any)
	if !ok {
		return
	}
	set := func(o map[string]any) {
		if _, ok := o["model"].(string); ok {
			o["model"] = "chat"
		}
	}
	set(o)
	for _, k := range []string{"response", "message"} {
		if inner, ok := o[k].(map[string]any); ok {
			set(inner)
		}
	}
}

func BenchmarkRename(b *testing.B) {
	event := []byte("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"internal\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"finish_reason\":null}]}\n\n")
	long := slicesOf(`{"model":"m","choices":[{"message":{"content":"`, strings.Repeat("word ", 20_000), `"}}]}`)
	for name, p := range map[string][]byte{"event": event, "object": long} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			var r Rename
			for b.Loop() {
				r.Open(map[bool]string{true: typeEvents, false: typeJSON}[name == "event"], "", "chat")
				r.Write(p)
			}
		})
	}
}

func slicesOf(parts ...string) []byte {
	var out bytes.Buffer
	for _, p := range parts {
		out.WriteString(p)
	}
	return out.Bytes()
}
