package vocab

// Settled reports whether Prepare would leave text unchanged. It may return false for unchanged
// text.
func (v *Vocab) Settled(text []byte) bool {
	return !v.added.strips && v.norm.settled(text)
}

// Prepare appends text as its tokens spell it: normalised, with the dummy
// prefix of SentencePiece vocabularies, without the white space that added
// tokens swallow. The tokens of Encode(text), put together, give these bytes.
func (v *Vocab) Prepare(dst, text []byte) []byte {
	if v.Settled(text) {
		return append(dst, text...)
	}
	w := walker{v: v, out: dst, bytes: true}
	w.walk(text)
	return w.out
}

// Encode appends the ids that the engine's tokenizer gives to text, without
// BOS and EOS. dst is returned as it was when CanEncode is false.
func (v *Vocab) Encode(dst []uint32, text []byte) []uint32 {
	if !v.CanEncode() {
		return dst
	}
	w := walker{v: v, ids: dst}
	w.walk(text)
	return w.ids
}

// EncodePrepared is Encode for text that is in text space already, such as
// the output of Prepare or the bytes of tokens.
func (v *Vocab) EncodePrepared(dst []uint32, text []byte) []uint32 {
	if !v.CanEncode() {
		return dst
	}
	for pos := 0; pos < len(text); {
		sp, ok := v.added.all.next(text, pos)
		end := len(text)
		if ok {
			end = sp.lit
		}
		if end > pos {
			dst = v.encodePieces(dst, text[pos:end])
		}
		if !ok {
			break
		}
		dst = append(dst, sp.id)
		pos = sp.lit + sp.size
	}
	return dst
}

// encodePieces splits text without added tokens and encodes each piece.
func (v *Vocab) encodePieces(dst []uint32, text []byte) []uint32 {
	for sp := v.pat.Split(text); !sp.Done(); {
		start := sp.Pos()
		dst = v.bpe.encode(dst, text[start:sp.Next()])
	}
	return dst
}

// walker splits a raw text as the engine's tokenizer does and collects either the ids or the bytes
// of its tokens.
type walker struct {
	v     *Vocab
	ids   []uint32
	out   []byte
	buf   []byte
	bytes bool
}

func (w *walker) walk(text []byte) {
	raw := w.v.added.raw
	for pos := 0; ; {
		sp, ok := raw.next(text, pos)
		end := len(text)
		if ok {
			end = sp.start
		}
		if end > pos {
			w.normal(text[pos:end], pos == 0)
		}
		if !ok {
			return
		}
		w.token(sp.id)
		pos = sp.stop
	}
}

// normal handles text between the tokens that are matched raw.
func (w *walker) normal(text []byte, first bool) {
	n := &w.v.norm
	text = n.apply(w.buf, text)
	if n.spm && cap(text) > cap(w.buf) {
		w.buf = text
	}
	normal := w.v.added.normal
	for pos := 0; ; {
		sp, ok := normal.next(text, pos)
		end := len(text)
		if ok {
			end = sp.start
		}
		if end > pos {
			w.piece(text[pos:end], first && pos == 0)
		}
		if !ok {
			return
		}
		w.token(sp.id)
		pos = sp.stop
	}
}

// piece handles text without added tokens.
func (w *walker) piece(text []byte, first bool) {
	prefix := w.v.norm.needsPrefix(text, first)
	switch {
	case w.bytes && prefix:
		w.out = append(append(w.out, ' '), text...)
	case w.bytes:
		w.out = append(w.out, text...)
	case prefix:
		w.ids = w.v.encodePieces(w.ids, append([]byte{' '}, text...))
	default:
		w.ids = w.v.encodePieces(w.ids, text)
	}
}

func (w *walker) token(id uint32) {
	if w.bytes {
		w.out = append(w.out, w.v.token(id)...)
		return
	}
	w.ids = append(w.ids, id)
}
