package vocab

import (
	"os"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// exercise calls everything that a loaded vocabulary offers.
func exercise(t *testing.T, v *Vocab, text []byte) {
	for id := range uint32(min(v.Size(), 2000)) {
		tok, ok := v.AppendToken(nil, id)
		if ok != (v.TokenLen(id) > 0) || len(tok) != v.TokenLen(id) {
			t.Fatalf("token %d is %q, of length %d", id, tok, v.TokenLen(id))
		}
	}
	ids := v.Encode(nil, text)
	for _, id := range ids {
		if v.TokenLen(id) == 0 {
			t.Fatalf("%q encodes to the unknown id %d", text, id)
		}
	}
	prepared := v.Prepare(nil, text)
	v.EncodePrepared(nil, prepared)
	v.BoundarySafe(prepared, len(prepared)/2)
	if c := v.NewChecker(); c != nil {
		n := len(ids)
		c.Check(Window{Before: ids[:n/3], Block: ids[n/3 : 2*n/3], After: ids[2*n/3:]})
	}
}

func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{
		`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"added_tokens":[{"id":3,"content":"<x>","lstrip":true,"normalized":true}],"pre_tokenizer":{"type":"ByteLevel"}}`,
		`{"model":{"type":"BPE","byte_fallback":true,"unk_token":"a","vocab":{"\u2581":0,"a":1,"\u2581a":2,"<0x41>":3},"merges":[["\u2581","a"]]},"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"\u2581"},{"type":"Replace","pattern":{"String":" "},"content":"\u2581"}]}}`,
		`{"model":{"type":"Unigram","vocab":[["\u2581a",-1.5]]},"decoder":{"type":"Metaspace"},"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}},{"Sequence":{"id":"A"}}],"special_tokens":{"s":{"ids":[0]}}}}`,
		`{"model":{"vocab":{"a":0},"merges":[]},"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Metaspace","prepend_scheme":"first"}}`,
	} {
		f.Add([]byte(s), []byte(" a b\u0301 ab<x> A\xff"))
	}
	sweep.Fuzz(f, sweep.Slow, func(t *testing.T, file, text []byte) {
		if v, err := ParseJSON(file, Options{}); err == nil {
			exercise(t, v, text)
		}
	})
}

func FuzzParseTekken(f *testing.F) {
	f.Add([]byte(`{"config":{"pattern":"x","default_vocab_size":9,"default_num_special_tokens":2},"vocab":[{"rank":0,"token_bytes":"YQ=="},{"rank":1,"token_bytes":"YWI="}]}`), []byte("a"))
	f.Add([]byte(`{"config":{"default_vocab_size":4,"default_num_special_tokens":3},"vocab":[],"special_tokens":[{"rank":1,"token_str":"<bos>"}]}`), []byte("é"))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, file, text []byte) {
		if v, err := ParseTekken(file, Options{}); err == nil {
			exercise(t, v, text)
		}
	})
}

func FuzzParseTiktoken(f *testing.F) {
	f.Add([]byte("YQ== 0\nYg== 1\nYWI= 2\n"), []byte("abc"))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, file, text []byte) {
		if v, err := ParseTiktoken(file, Options{Pattern: "o200k"}); err == nil {
			exercise(t, v, text)
		}
	})
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	if _, err := Find(dir); err == nil {
		t.Error("an empty folder holds a vocabulary")
	}
	for _, name := range []string{"qwen.tiktoken", "tekken.json", "tokenizer.json"} {
		if err := os.WriteFile(dir+"/"+name, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Find(dir); err != nil || got != dir+"/"+name {
			t.Errorf("found %q, %v; want %s", got, err, name)
		}
	}
}
