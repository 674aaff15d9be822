package vocab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"unicode/utf8"
)

// pattern splits text into pre-tokens, as several public model families do.
const pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// WriteModel writes the vocabulary and its chat template to dir, which is
// made when it is missing, as tokenizer.json and tokenizer_config.json.
func (v *Vocabulary) WriteModel(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	for name, content := range map[string]any{
		"tokenizer.json":        v.tokenizer(),
		"tokenizer_config.json": v.tokenizerConfig(),
	} {
		raw, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return fmt.Errorf("vocab: %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), append(raw, '\n'), 0o644); err != nil {
			return fmt.Errorf("vocab: %w", err)
		}
	}
	return nil
}

type addedToken struct {
	ID         *uint32 `json:"id,omitempty"`
	Content    string  `json:"content"`
	SingleWord bool    `json:"single_word"`
	Lstrip     bool    `json:"lstrip"`
	Rstrip     bool    `json:"rstrip"`
	Normalized bool    `json:"normalized"`
	Special    bool    `json:"special"`
}

func byteLevel() map[string]any {
	return map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
}

func (v *Vocabulary) tokenizer() map[string]any {
	ids := make(map[string]int, len(v.text))
	for id, text := range v.text[:len(v.text)-len(specials)] {
		ids[printable(text)] = id
	}
	var merges []string
	for _, text := range v.text[256 : len(v.text)-len(specials)] {
		last := len(text) - 1
		merges = append(merges, printable(text[:last])+" "+printable(text[last:]))
	}
	var added []addedToken
	for _, s := range specials {
		id := v.special(s)
		added = append(added, addedToken{ID: &id, Content: s, Special: true})
	}
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "added_tokens": added,
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": pattern}, "behavior": "Isolated", "invert": false},
			byteLevel(),
		}},
		"post_processor": byteLevel(),
		"decoder":        byteLevel(),
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "", "end_of_word_suffix": "",
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": ids, "merges": merges,
		},
	}
}

func (v *Vocabulary) tokenizerConfig() map[string]any {
	decoder := map[string]addedToken{}
	for _, s := range specials {
		decoder[strconv.Itoa(int(v.special(s)))] = addedToken{Content: s, Special: true}
	}
	return map[string]any{
		"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": false, "add_prefix_space": false,
		"bos_token": nil, "eos_token": ImEnd, "pad_token": EndOfText, "unk_token": nil,
		"clean_up_tokenization_spaces": false, "model_max_length": 1 << 20,
		"added_tokens_decoder": decoder, "chat_template": chatTemplate,
	}
}

// printable writes bytes in the alphabet of byte-level BPE files. Printable Latin-1 bytes stand for
// themselves; the others map, in order, to U+0100 and up.
func printable(text string) string {
	var out []byte
	for i := range len(text) {
		out = utf8.AppendRune(out, byteRune(text[i]))
	}
	return string(out)
}

func byteRune(b byte) rune {
	next := rune(0x100)
	for c := range 256 {
		self := c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae
		switch {
		case c == int(b) && self:
			return rune(b)
		case c == int(b):
			return next
		case !self:
			next++
		}
	}
	return next
}
