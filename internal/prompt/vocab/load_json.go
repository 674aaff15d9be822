package vocab

import (
	"fmt"

	"github.com/valyala/fastjson"

	"github.com/grapevine-epp/grapevine/internal/prompt/vocab/split"
)

// ParseJSON reads a Hugging Face tokenizer.json.
func ParseJSON(data []byte, o Options) (*Vocab, error) {
	root, err := fastjson.ParseBytes(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if root.Type() != fastjson.TypeObject {
		return nil, fmt.Errorf("%w: not a JSON object", ErrFormat)
	}
	l := &jsonLoader{v: &Vocab{}, model: field(root, "model")}
	if l.model == nil || l.model.Type() != fastjson.TypeObject {
		return nil, fmt.Errorf("%w: no model", ErrFormat)
	}
	l.pipeline(root)
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

// jsonLoader gathers what the parts of the file say about each other.
type jsonLoader struct {
	v            *Vocab
	b            builder
	model        *fastjson.Value
	isByte       map[uint32]bool   // SentencePiece byte tokens
	byStr        map[string]uint32 // token strings of the base vocabulary, as written
	split        *split.Pattern
	splitUnknown bool // the file splits in a way that we do not know
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
	l.byStr, l.isByte = map[string]uint32{}, map[uint32]bool{}
	vocab := field(l.model, "vocab")
	if vocab == nil {
		return fmt.Errorf("%w: no model.vocab", ErrFormat)
	}
	if vocab.Type() == fastjson.TypeArray {
		for i, e := range vocab.GetArray() {
			piece := e.GetArray()
			if len(piece) == 0 || piece[0].Type() != fastjson.TypeString {
				return fmt.Errorf("%w: model.vocab[%d] is not a piece and its score", ErrFormat, i)
			}
			if err := l.token(string(piece[0].GetStringBytes()), int64(i)); err != nil {
				return err
			}
		}
		return nil
	}
	obj, err := vocab.Object()
	if err != nil {
		return fmt.Errorf("%w: model.vocab: %w", ErrFormat, err)
	}
	obj.Visit(func(k []byte, val *fastjson.Value) {
		if err != nil {
			return
		}
		id, e := val.Int64()
		if e != nil {
			err = fmt.Errorf("%w: id of token %.40q: %w", ErrFormat, k, e)
			return
		}
		err = l.token(string(k), id)
	})
	return err
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

// addedBytes returns what an added token decodes to: its content, except where
// the base vocabulary has the same token or the decoder turns U+2581 into
// spaces.
func (l *jsonLoader) addedBytes(a Added) []byte {
	if id, ok := l.byStr[a.Content]; ok && id == a.ID {
		return l.b.toks[id]
	}
	if l.v.mode == ModeSPM && !a.Special {
		return appendSPMSpaces(nil, a.Content)
	}
	return []byte(a.Content)
}
