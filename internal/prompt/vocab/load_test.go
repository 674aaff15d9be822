package vocab

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/prompt/vocab/split"
)

// ranks writes the base tokens of v as a tiktoken file; their ids are ranks.
func ranks(v *Vocab) []byte {
	var b bytes.Buffer
	for id := range uint32(v.Size()) {
		if v.TokenLen(id) > 0 && !v.IsAdded(id) {
			fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString(v.token(id)), id)
		}
	}
	return b.Bytes()
}

// TestTiktoken loads the vocabularies of two models with rank-ordered merges as rank files. The
// encoding must be the same.
func TestTiktoken(t *testing.T) {
	texts := append(hardStrings(41, 1500, 12), randomRunes(4, 100, 30)...)
	for name, pattern := range map[string]string{"qwen3": "qwen2", "llama3_1": "cl100k"} {
		want, _ := realModel(t, name)
		path := filepath.Join(t.TempDir(), "model.tiktoken")
		if err := os.WriteFile(path, ranks(want), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Load(path, Options{Pattern: pattern})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			text = string(want.Prepare(nil, []byte(text))) // rank files do not normalise
			if strings.Contains(text, "<") {
				continue // nor do they have these special tokens
			}
			if a, b := got.Encode(nil, []byte(text)), want.Encode(nil, []byte(text)); !slices.Equal(a, b) {
				t.Errorf("%s: %q gives %v, want %v", name, text, show(got, a), show(want, b))
			}
		}
		if bare, err := ParseTiktoken(ranks(want), Options{}); err != nil || bare.CanEncode() || len(bare.Notes()) != 1 {
			t.Errorf("without a pattern: %v, notes %v", err, bare.Notes())
		}
	}
}

func tekkenFile(specials string) []byte {
	type entry struct {
		Rank  int    `json:"rank"`
		Bytes []byte `json:"token_bytes"`
	}
	var list []entry
	for c := range 256 {
		list = append(list, entry{c, []byte{byte(c)}})
	}
	for i, s := range []string{"he", "ll", "hell", "hello", " w", "or", "ld", " wor", " world", "too much"} {
		list = append(list, entry{256 + i, []byte(s)})
	}
	vocab, _ := json.Marshal(list)
	return fmt.Appendf(nil, `{"config":{"pattern":%q,"default_vocab_size":285,"default_num_special_tokens":20},"vocab":%s%s}`, split.Tekken, vocab, specials)
}

func TestTekken(t *testing.T) {
	v, err := ParseTekken(tekkenFile(""), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := show(v, v.Encode(nil, []byte("hello world[INST]")))
	if want := []string{"hello", " world", "[", "I", "N", "S", "T", "]"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for id, want := range map[uint32]string{0: "<unk>", 3: "[INST]", 19: "[TOOL_CONTENT]", 20: "\x00", 20 + 256: "he"} {
		if tok, ok := v.AppendToken(nil, id); !ok || string(tok) != want {
			t.Errorf("token %d is %q, want %q", id, tok, want)
		}
	}
	if v.IsAdded(20) || !v.IsAdded(19) {
		t.Error("the control tokens are not the first 20")
	}
	if _, ok := v.AppendToken(nil, 285); ok {
		t.Error("a token beyond the model's size decodes")
	}
	v, err = ParseTekken(tekkenFile(`,"special_tokens":[{"rank":1,"token_str":"<bos>"}]`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if tok, _ := v.AppendTokens(nil, []uint32{0, 1}); string(tok) != "<SPECIAL_0><bos>" {
		t.Errorf("listed control tokens spell %q", tok)
	}
}

func TestLoadErrors(t *testing.T) {
	merges := func(m string) string {
		return `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":` + m + `}}`
	}
	cases := []struct{ name, in, want string }{
		{"not JSON", `{`, "malformed"},
		{"a list", `[]`, "not a JSON object"},
		{"no model", `{}`, "no model"},
		{"no vocabulary", `{"model":{"type":"BPE"}}`, "no model.vocab"},
		{"empty vocabulary", `{"model":{"type":"BPE","vocab":{},"merges":[]}}`, "no tokens"},
		{"id is text", `{"model":{"type":"BPE","vocab":{"a":"x"},"merges":[]}}`, "id of token"},
		{"id is negative", `{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`, "too large"},
		{"id is huge", `{"model":{"type":"BPE","vocab":{"a":99999999},"merges":[]}}`, "too large"},
		{"id twice", `{"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}}`, "defined twice"},
		{"no merges", `{"model":{"type":"BPE","vocab":{"a":0}}}`, "no model.merges"},
		{"merge of one", merges(`["a"]`), "not a pair"},
		{"merge of three", merges(`[["a","b","c"]]`), "not a pair"},
		{"merge unknown", merges(`["a c"]`), "not in the vocabulary"},
		{"added without id", `{"model":{"vocab":{"a":0}},"added_tokens":[{"content":"x"}]}`, "no id"},
		{"added is an object", `{"model":{"vocab":{"a":0}},"added_tokens":{}}`, "not a list"},
		{"pieces malformed", `{"model":{"type":"Unigram","vocab":["a"]}}`, "piece"},
	}
	for _, c := range cases {
		_, err := ParseJSON([]byte(c.in), Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
		if err != nil && !errors.Is(err, ErrFormat) && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v wraps no sentinel", c.name, err)
		}
	}
	for name, in := range map[string]string{"no rank": "YQ==\n", "bad base64": "!!! 0\n", "bad rank": "YQ== x\n", "empty": "\n", "rank twice": "YQ== 0\nYg== 0\n"} {
		if _, err := ParseTiktoken([]byte(in), Options{}); err == nil {
			t.Errorf("tiktoken, %s: no error", name)
		}
	}
	for name, in := range map[string]string{"no config": `{}`, "sizes": `{"config":{"default_vocab_size":5,"default_num_special_tokens":9}}`} {
		if _, err := ParseTekken([]byte(in), Options{}); err == nil {
			t.Errorf("tekken, %s: no error", name)
		}
	}
}

func TestUnavailable(t *testing.T) {
	cases := map[string]string{
		"pre-tokenizer": `{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"pre_tokenizer":{"type":"Split","pattern":{"Regex":"x+"},"behavior":"Isolated"}}`,
		"Unigram":       `{"model":{"type":"Unigram","vocab":[["\u2581a",-1.5],["<0x41>",0]]},"decoder":{"type":"Metaspace"}}`,
		"WordPiece":     `{"model":{"type":"WordPiece","vocab":{"a":0}}}`,
		"dropout":       `{"model":{"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}}`,
	}
	for name, in := range cases {
		v, err := ParseJSON([]byte(in), Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if v.CanEncode() || v.NewChecker() != nil || len(v.Notes()) == 0 {
			t.Errorf("%s: encodes, or gives no reason: %v", name, v.Notes())
		}
		if ids := v.Encode(nil, []byte("a")); len(ids) != 0 {
			t.Errorf("%s: encodes to %v", name, ids)
		}
		if !v.BoundarySafe([]byte("abc"), 1) {
			t.Errorf("%s: finds an unsafe boundary without an encoder", name)
		}
	}
	v, _ := ParseJSON([]byte(cases["Unigram"]), Options{})
	if got, ok := v.AppendTokens(nil, []uint32{0, 1}); !ok || string(got) != " aA" {
		t.Errorf("pieces decode to %q", got)
	}
}

func TestAppendTokens(t *testing.T) {
	v, _ := realModel(t, "llama3_1")
	if got, ok := v.AppendTokens([]byte("x"), []uint32{128000, 9906, 1917}); !ok || string(got) != "x<|begin_of_text|>Hello world" {
		t.Errorf("got %q, %v", got, ok)
	}
	for _, bad := range []uint32{uint32(v.Size()), 1 << 31, ^uint32(0)} {
		if got, ok := v.AppendTokens([]byte("x"), []uint32{9906, bad}); ok || string(got) != "x" {
			t.Errorf("id %d: got %q, %v", bad, got, ok)
		}
		if _, ok := v.AppendToken(nil, bad); ok || v.TokenLen(bad) != 0 || v.IsAdded(bad) {
			t.Errorf("id %d is known", bad)
		}
	}
	dst, ids := make([]byte, 0, 100), []uint32{9906, 1917}
	if n := testing.AllocsPerRun(100, func() { dst, _ = v.AppendTokens(dst[:0], ids) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if bos := v.BOS(); !slices.Equal(bos, []uint32{128000}) || len(v.EOS()) != 0 {
		t.Errorf("BOS %v, EOS %v", bos, v.EOS())
	}
}

func TestAddedOptions(t *testing.T) {
	in := []byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},"added_tokens":[{"id":2,"content":"<x>"}]}`)
	v, err := ParseJSON(in, Options{Added: []Added{{ID: 2, Content: "<other>"}, {ID: 3, Content: "<y>"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := v.Encode(nil, []byte("<y>a<x><other>b")); !slices.Equal(got, []uint32{3, 0, 2, 1}) {
		t.Errorf("got %v", got)
	}
}

// TestSpacesExceptions checks that cutting at spaces, past a token that
// reaches over one, encodes as the text in one piece does.
func TestSpacesExceptions(t *testing.T) {
	in := `{"model":{"type":"BPE","byte_fallback":true,"vocab":{"a":0,"b":1,">":2,"<":3,"/":4,"\u2581":5,"\u2581a":6,"ab":7,"</":8,"\u2581</":9,">\u2581</":10,"\u2581\u2581":11},
		"merges":["\u2581 a","a b","< /","\u2581 </","> \u2581</","\u2581 \u2581"]},"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"\u2581"}}`
	v, err := ParseJSON([]byte(in), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if v.pat == split.Spaces(nil) || v.pat.Name() != split.Spaces(nil).Name() {
		t.Fatalf("pattern %s without exceptions", v.pat.Name())
	}
	whole := *v
	whole.pat = split.Whole()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		text := make([]byte, rng.IntN(20))
		for i := range text {
			text[i] = "ab></  "[rng.IntN(7)]
		}
		got, want := v.Encode(nil, text), whole.Encode(nil, text)
		if !slices.Equal(got, want) {
			t.Fatalf("%q: got %q, want %q", text, show(v, got), show(v, want))
		}
		checkBoundaries(t, v, []string{string(text)})
	}
}
