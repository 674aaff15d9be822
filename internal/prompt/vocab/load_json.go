package vocab

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/valyala/fastjson"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
	"github.com/grapevine-epp/grapevine/internal/prompt/vocab/split"
)

// ParseJSON parses a Hugging Face tokenizer.json. Tokens and merges, most of the file, are parsed
// in place; the rest becomes a tree.
func ParseJSON(data []byte, o Options) (*Vocab, error) {
	root, parts, err := parseAround(data, "model")
	if err != nil {
		return nil, err
	}
	if parts["model"] == nil {
		return nil, fmt.Errorf("%w: no model", ErrFormat)
	}
	l := &jsonLoader{v: &Vocab{}}
	if l.model, l.large, err = parseAround(parts["model"], "vocab", "merges"); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	l.pipeline(root, o.Prefix)
	if err := l.vocab(); err != nil {
		return nil, err
	}
	if err := l.addedTokens(field(root, "added_tokens")); err != nil {
		return nil, err
	}
	if err := l.b.addMissing(o.Added); err != nil {
		return nil, err
	}
	if err := l.b.finish(l.v); err != nil {
		return nil, err
	}
	if err := l.encoder(); err != nil {
		return nil, err
	}
	l.template(field(root, "post_processor"))
	return l.v, nil
}

// parseAround parses an object without the members named in large, and returns their raw values.
func parseAround(doc []byte, large ...string) (*fastjson.Value, map[string][]byte, error) {
	if b := bytes.TrimLeft(doc, " \t\r\n"); len(b) == 0 || b[0] != '{' {
		return nil, nil, fmt.Errorf("%w: not a JSON object", ErrFormat)
	}
	rest, parts, err := value.Split(doc, large...)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	v, err := fastjson.ParseBytes(rest)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return v, parts, nil
}

// jsonLoader holds the state shared by the sections of the file.
type jsonLoader struct {
	v            *Vocab
	b            builder
	model        *fastjson.Value   // without the large members
	large        map[string][]byte // vocab and merges as written
	isByte       map[uint32]bool   // SentencePiece byte tokens
	byStr        map[string]uint32 // token strings of the base vocabulary; parts of the file
	split        *split.Pattern
	splitUnknown bool // the file uses an unsupported split
}

// field returns the last value of a key, as engines read duplicate keys.
func field(v *fastjson.Value, key string) *fastjson.Value {
	if v == nil || v.Type() != fastjson.TypeObject {
		return nil
	}
	var out *fastjson.Value
	v.GetObject().Visit(func(k []byte, val *fastjson.Value) {
		if string(k) == key {
			out = val
		}
	})
	if out != nil && out.Type() == fastjson.TypeNull {
		return nil
	}
	return out
}

func str(v *fastjson.Value, key string) string {
	if f := field(v, key); f != nil && f.Type() == fastjson.TypeString {
		return string(f.GetStringBytes())
	}
	return ""
}

func boolean(v *fastjson.Value, key string) bool {
	f := field(v, key)
	return f != nil && f.Type() == fastjson.TypeTrue
}

func (l *jsonLoader) note(format string, args ...any) {
	l.v.notes = append(l.v.notes, fmt.Sprintf(format, args...))
}

// vocab reads model.vocab: an object of ids, or Unigram's list of pieces.
func (l *jsonLoader) vocab() error {
	vocab, i := l.large["vocab"], int64(-1)
	if vocab == nil {
		return fmt.Errorf("%w: no model.vocab", ErrFormat)
	}
	n := min(bytes.Count(vocab, []byte{','}), maxTokens) // an estimate that avoids growth
	l.byStr, l.isByte = make(map[string]uint32, n), map[uint32]bool{}
	l.b.toks = make([][]byte, 0, n)
	var err error
	if vocab[0] == '[' {
		err = value.Elements(vocab, func(piece []byte) error {
			i++
			s, ok := firstText(piece)
			if !ok {
				return fmt.Errorf("%w: model.vocab[%d] is not a piece and its score", ErrFormat, i)
			}
			return l.token(s, i)
		})
	} else {
		err = value.Members(vocab, func(s string, val []byte) error {
			id, err := strconv.ParseInt(string(val), 10, 64)
			if err != nil {
				return fmt.Errorf("%w: id of token %.40q: %w", ErrFormat, s, err)
			}
			return l.token(s, id)
		})
	}
	if errors.Is(err, value.ErrJSON) {
		return fmt.Errorf("%w: model.vocab: %w", ErrFormat, err)
	}
	return err
}

// firstText returns the first of a list's elements when that is a string.
func firstText(list []byte) (first string, ok bool) {
	n := 0
	err := value.Elements(list, func(e []byte) (err error) {
		if n++; n == 1 {
			first, err = value.Text(e)
		}
		return err
	})
	return first, err == nil && n > 0
}

// token defines one token of the base vocabulary.
func (l *jsonLoader) token(s string, id int64) error {
	var tok []byte
	switch l.v.mode {
	case ModeByteLevel:
		var err error
		if tok, err = byteLevel(s); err != nil {
			tok = []byte(s) // a control token such as <|endoftext|> kept in the vocabulary, or one of another script
		}
	case ModeSPM:
		var isByte bool
		if tok, isByte = spmBytes(s); isByte {
			l.isByte[uint32(id)] = true
		}
	default:
		tok = []byte(s)
	}
	if err := l.b.set(id, tok, false); err != nil {
		return err
	}
	l.byStr[s] = uint32(id)
	return nil
}

func (l *jsonLoader) addedTokens(list *fastjson.Value) error {
	if list == nil {
		return nil
	}
	if list.Type() != fastjson.TypeArray {
		return fmt.Errorf("%w: added_tokens is not a list", ErrFormat)
	}
	for i, e := range list.GetArray() {
		f := field(e, "id")
		if f == nil {
			return fmt.Errorf("%w: added_tokens[%d] has no id", ErrFormat, i)
		}
		id, err := f.Int64()
		if err != nil || id < 0 || id >= maxTokens {
			return fmt.Errorf("%w: added_tokens[%d] has no valid id", ErrFormat, i)
		}
		a := Added{
			ID: uint32(id), Content: str(e, "content"),
			LStrip: boolean(e, "lstrip"), RStrip: boolean(e, "rstrip"),
			SingleWord: boolean(e, "single_word"), Normalized: boolean(e, "normalized"),
			Special: boolean(e, "special"),
		}
		if err := l.b.add(a, l.addedBytes(a)); err != nil {
			return err
		}
	}
	return nil
}

// addedBytes returns the bytes of an added token: its content, unless the base vocabulary has the
// same token or the decoder replaces U+2581 by spaces.
func (l *jsonLoader) addedBytes(a Added) []byte {
	if id, ok := l.byStr[a.Content]; ok && id == a.ID {
		return l.b.toks[id]
	}
	if l.v.mode == ModeSPM && !a.Special {
		return appendSPMSpaces(nil, a.Content)
	}
	return []byte(a.Content)
}
