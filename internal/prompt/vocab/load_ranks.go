package vocab

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/valyala/fastjson"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
	"github.com/grapevine-epp/grapevine/internal/prompt/vocab/split"
)

// ParseTiktoken reads a file of lines "base64-bytes rank". The rank is the id
// and the order of merging.
func ParseTiktoken(data []byte, o Options) (*Vocab, error) {
	v := &Vocab{mode: ModeBytes}
	var b builder
	for n := 1; len(data) > 0; n++ {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte{'\n'})
		line = bytes.TrimRight(line, "\r ")
		if len(line) == 0 {
			continue
		}
		enc, rank, ok := bytes.Cut(line, []byte{' '})
		if !ok {
			return nil, fmt.Errorf("%w: line %d is not \"bytes rank\"", ErrFormat, n)
		}
		id, err := strconv.ParseUint(string(rank), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: rank: %w", ErrFormat, n, err)
		}
		tok, err := decodeBase64(enc)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrFormat, n, err)
		}
		if err := b.set(int64(id), tok, false); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return finishRanks(v, &b, 0, len(b.toks), o)
}

// finishRanks completes a vocabulary in which the ids from lo to hi are ordered by merge rank.
func finishRanks(v *Vocab, b *builder, lo, hi int, o Options) (*Vocab, error) {
	if err := b.addMissing(o.Added); err != nil {
		return nil, err
	}
	if err := b.finish(v); err != nil {
		return nil, err
	}
	if o.Pattern == "" {
		v.note("the file names no split pattern: no encoding")
		return v, nil
	}
	pat := split.Named(o.Pattern)
	if pat == nil {
		pat = split.Find(o.Pattern)
	}
	if pat == nil {
		v.note("split pattern %.200s is not known: no encoding", o.Pattern)
		return v, nil
	}
	ids := make([]uint32, 0, hi-lo)
	for id := lo; id < hi; id++ {
		if v.TokenLen(uint32(id)) > 0 {
			ids = append(ids, uint32(id))
		}
	}
	v.bpe, v.pat = ranksBPE(v, ids), pat
	return v, nil
}

func (v *Vocab) note(format string, args ...any) {
	v.notes = append(v.notes, fmt.Sprintf(format, args...))
}

// ranksBPE derives the merges of a rank file: two neighbours merge when their
// bytes together are a token, in the order of its rank.
func ranksBPE(v *Vocab, ids []uint32) *bpe {
	b := &bpe{pieces: newPieceTable(v.blob, v.offs, ids), whole: true, unk: noToken}
	for c := range b.bytes {
		b.bytes[c] = noToken
		if id, ok := b.pieces.find([]byte{byte(c)}); ok {
			b.bytes[c] = id
		}
	}
	type merge struct{ left, right, id uint32 }
	var merges []merge
	for _, id := range ids {
		tok := v.token(id)
		if len(tok) > 256 || len(merges) > maxMerges {
			continue // no text of the trainer's merges this long
		}
		for cut := 1; cut < len(tok); cut++ {
			left, ok := b.pieces.find(tok[:cut])
			if !ok {
				continue
			}
			if right, ok := b.pieces.find(tok[cut:]); ok {
				merges = append(merges, merge{left, right, id})
			}
		}
	}
	b.pairs = newPairTable(len(merges))
	for _, m := range merges {
		b.pairs.put(m.left, m.right, m.id, m.id)
	}
	b.markSelf(v, ids)
	return b
}

func decodeBase64(s []byte) ([]byte, error) {
	out := make([]byte, base64.StdEncoding.DecodedLen(len(s)))
	n, err := base64.StdEncoding.Decode(out, s)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("empty token")
	}
	return out[:n], nil
}

// tekkenSpecials are the control tokens of tekken files that do not list any; further ids up to the
// file's count are <SPECIAL_n>.
var tekkenSpecials = []string{
	"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
	"[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]",
	"[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
}

// ParseTekken reads a tekken.json. Its control tokens come first and are never
// matched in text.
func ParseTekken(data []byte, o Options) (*Vocab, error) {
	root, parts, err := parseAround(data, "vocab")
	if err != nil {
		return nil, err
	}
	config := field(root, "config")
	specials := config.GetInt("default_num_special_tokens")
	size := config.GetInt("default_vocab_size")
	if specials < 0 || specials > maxAdded || size <= specials || size > maxTokens {
		return nil, fmt.Errorf("%w: config gives %d tokens, %d of them special", ErrFormat, size, specials)
	}
	v := &Vocab{mode: ModeBytes}
	var b builder
	if err := tekkenControls(&b, field(root, "special_tokens"), specials); err != nil {
		return nil, err
	}
	var p fastjson.Parser
	err = value.Elements(parts["vocab"], func(entry []byte) error {
		e, err := p.ParseBytes(entry)
		if err != nil {
			return err
		}
		rank := e.GetInt("rank")
		if rank < 0 || rank >= size-specials {
			return nil // the file may hold more than the model uses
		}
		tok, err := decodeBase64(e.GetStringBytes("token_bytes"))
		if err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		return b.set(int64(specials+rank), tok, false)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: vocab: %w", ErrFormat, err)
	}
	if o.Pattern == "" {
		o.Pattern = str(config, "pattern")
	}
	if v, err = finishRanks(v, &b, specials, len(b.toks), o); err != nil {
		return nil, err
	}
	for id := 0; id < specials; id++ {
		v.special[id>>6] |= 1 << (id & 63)
	}
	return v, nil
}

func tekkenControls(b *builder, list *fastjson.Value, n int) error {
	for id := 0; id < n; id++ {
		name := fmt.Sprintf("<SPECIAL_%d>", id)
		if id < len(tekkenSpecials) && list == nil {
			name = tekkenSpecials[id]
		}
		if err := b.set(int64(id), []byte(name), true); err != nil {
			return err
		}
	}
	for i, e := range list.GetArray() {
		rank, name := e.GetInt("rank"), e.GetStringBytes("token_str")
		if rank < 0 || rank >= n || len(name) == 0 {
			return fmt.Errorf("%w: special_tokens[%d]", ErrFormat, i)
		}
		if err := b.set(int64(rank), append([]byte(nil), name...), true); err != nil {
			return err
		}
	}
	return nil
}
