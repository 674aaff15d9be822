package prompt

import (
	"encoding/json"
	"testing"
)

// A model is not ready if its vocabulary's tokens do not represent all of their text: text prompts
// are not matched exactly. Prompts of token ids are.
func TestLossyVocabulariesAreNotReady(t *testing.T) {
	for _, c := range []struct {
		name  string
		parts object
		lossy bool
	}{
		{"byte level", object{"pre_tokenizer": object{"type": "ByteLevel"}}, false},
		{"unknown split", object{"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []any{object{"type": "Digits"}, object{"type": "ByteLevel"}}}}, false},
		{"precompiled normalizer", object{"normalizer": object{"type": "Sequence", "normalizers": []any{object{"type": "Precompiled"}}}, "pre_tokenizer": object{"type": "Metaspace"}}, true},
		{"BERT's normalizer", object{"normalizer": object{"type": "BertNormalizer"}}, true},
		{"white space left out", object{"pre_tokenizer": object{"type": "Whitespace"}}, true},
		{"a removing split", object{"pre_tokenizer": object{"type": "Split", "pattern": object{"String": " "}, "behavior": "Removed"}}, true},
	} {
		file := object{"model": object{"type": "BPE", "vocab": object{"a": 0, "b": 1}, "merges": []any{}}}
		for k, v := range c.parts {
			file[k] = v
		}
		data, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		files := folderOf(plainTemplate)
		files["tokenizer.json"] = string(data)
		models := NewModels(ModelsOptions{})
		models.Set([]Config{{Path: smallFolder(t, files), Options: Options{Name: "m"}}})
		if err := models.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := StateReady
		if c.lossy {
			want = StateLossy
		}
		st := models.Status()[0]
		if st.State != want || (st.Error != "") != c.lossy {
			t.Errorf("%s: state %s, error %q, want %s", c.name, st.State, st.Error, want)
		}
		for body, kind := range map[string]Kind{`{"messages":[{"role":"user","content":"ab"}]}`: KindChat, `{"prompt":"ab"}`: KindCompletions, `{"prompt":[0,1]}`: KindGenerate} {
			_, _, err := models.Render(t.Context(), "m", nil, []byte(body), kind)
			if refused := ReasonOf(err) == ReasonUnsupported; refused != (c.lossy && kind != KindGenerate) {
				t.Errorf("%s, %s: %v, lossy %v", c.name, body, err, c.lossy)
			}
		}
		models.Close()
	}
}
