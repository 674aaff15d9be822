package vocab

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/valyala/fastjson"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
	"github.com/grapevine-epp/grapevine/internal/prompt/vocab/split"
)

// encoder builds the byte-pair encoder, or notes why there is none.
func (l *jsonLoader) encoder() error {
	merges := l.large["merges"]
	if typ := str(l.model, "type"); typ != "BPE" && (typ != "" || merges == nil) {
		l.note("model %s: no encoding", typ)
		return nil
	}
	if l.splitUnknown {
		return nil
	}
	if f := field(l.model, "dropout"); f != nil && f.Type() == fastjson.TypeNumber {
		l.note("BPE dropout: no encoding")
		return nil
	}
	for _, affix := range []string{"continuing_subword_prefix", "end_of_word_suffix"} {
		if s := str(l.model, affix); s != "" {
			l.note("%s %q: no encoding", affix, s)
			return nil
		}
	}
	pairs, err := l.merges(merges)
	if err != nil {
		return err
	}
	b := &bpe{pairs: pairs, whole: boolean(l.model, "ignore_merges"), unk: noToken, chars: l.v.mode != ModeByteLevel}
	if name := str(l.model, "unk_token"); name != "" {
		if unk, ok := l.byStr[name]; ok {
			b.unk = unk
		}
	}
	ids := l.pieceIDs()
	b.pieces = newPieceTable(l.v.blob, l.v.offs, ids)
	l.byteTokens(b)
	b.markSelf(l.v, ids)
	l.v.bpe, l.v.pat = b, l.split
	if l.v.pat == nil {
		l.v.pat = split.Whole()
	}
	if l.v.mode == ModeSPM && l.v.pat == split.Whole() {
		l.v.pat = l.spacesPattern()
	}
	return nil
}

// pieceIDs lists the base vocabulary's ids that text can produce.
func (l *jsonLoader) pieceIDs() []uint32 {
	ids := make([]uint32, 0, len(l.byStr))
	for s, id := range l.byStr {
		switch {
		case l.isByte[id], s == "":
		case l.v.mode == ModeSPM && strings.Contains(s, " "):
		case l.v.mode == ModeByteLevel && !inAlphabet(s):
		default:
			ids = append(ids, id)
		}
	}
	return ids
}

func inAlphabet(s string) bool {
	_, err := byteLevel(s)
	return err == nil
}

// byteTokens finds the token of each single byte.
func (l *jsonLoader) byteTokens(b *bpe) {
	for c := range b.bytes {
		b.bytes[c] = noToken
		if l.v.mode == ModeByteLevel {
			if id, ok := b.pieces.find([]byte{byte(c)}); ok {
				b.bytes[c] = id
			}
		} else if id, ok := l.byStr[fmt.Sprintf("<0x%02X>", c)]; ok && boolean(l.model, "byte_fallback") {
			b.bytes[c] = id
		}
	}
}

// merges reads model.merges: "left right" strings or pairs, best first.
func (l *jsonLoader) merges(list []byte) (*pairTable, error) {
	if len(list) == 0 || list[0] != '[' {
		return nil, fmt.Errorf("%w: no model.merges", ErrFormat)
	}
	n := 0
	if err := value.Elements(list, func([]byte) error { n++; return nil }); err != nil {
		return nil, fmt.Errorf("%w: model.merges: %w", ErrFormat, err)
	}
	if n > maxMerges {
		return nil, fmt.Errorf("%w: %d merges", ErrTooLarge, n)
	}
	t, rank := newPairTable(n), 0
	err := value.Elements(list, func(m []byte) error {
		left, right, ok := mergePair(m)
		if !ok {
			return fmt.Errorf("%w: model.merges[%d] is not a pair", ErrFormat, rank)
		}
		a, ok1 := l.byStr[left]
		b, ok2 := l.byStr[right]
		c, ok3 := l.byStr[left+right]
		if !ok1 || !ok2 || !ok3 {
			return fmt.Errorf("%w: model.merges[%d] (%.40q, %.40q) names a token that is not in the vocabulary", ErrFormat, rank, left, right)
		}
		t.put(a, b, uint32(rank), c)
		rank++
		return nil
	})
	return t, err
}

func mergePair(m []byte) (left, right string, ok bool) {
	if s, err := value.Text(m); err == nil {
		return strings.Cut(s, " ")
	}
	n := 0
	err := value.Elements(m, func(e []byte) (err error) {
		if n++; n == 1 {
			left, err = value.Text(e)
		} else {
			right, err = value.Text(e)
		}
		return err
	})
	return left, right, err == nil && n == 2
}

// maxExcept limits the number of tokens with a space after another character. Beyond it, text is
// not split at spaces.
const maxExcept = 64

// spacesPattern returns the pattern that cuts text before each run of spaces. The cut changes no
// encoding if no token that merges can form extends over it; the few tokens that could are the
// pattern's exceptions.
func (l *jsonLoader) spacesPattern() *split.Pattern {
	var except [][]byte
	for s, id := range l.byStr {
		if l.isByte[id] || strings.Contains(s, " ") {
			continue
		}
		tok := l.v.token(id)
		if word := bytes.TrimLeft(tok, " "); bytes.IndexByte(word, ' ') < 0 {
			continue
		}
		if except = append(except, tok); len(except) > maxExcept {
			return split.Whole()
		}
	}
	return split.Spaces(except)
}
