package vocab

import "fmt"

// builder gathers tokens in any order and checks them on the way.
type builder struct {
	toks  [][]byte // nil = hole
	bytes int
	added []Added
}

// Added is a token that is matched in text before the text is split, with the
// flags that decide how.
type Added struct {
	ID         uint32
	Content    string
	LStrip     bool // swallows white space before it
	RStrip     bool // swallows white space after it
	SingleWord bool // matches only between non-word characters
	Normalized bool // matched after normalisation rather than before
	Special    bool
}

// set defines the bytes of id. A second definition with other bytes is an
// error unless replace is set.
func (b *builder) set(id int64, tok []byte, replace bool) error {
	if id < 0 || id >= maxTokens {
		return fmt.Errorf("%w: token id %d", ErrTooLarge, id)
	}
	if len(tok) > maxTokenBytes {
		return fmt.Errorf("%w: token %d has %d bytes", ErrTooLarge, id, len(tok))
	}
	for int64(len(b.toks)) <= id {
		b.toks = append(b.toks, nil)
	}
	if old := b.toks[id]; old != nil && !replace && string(old) != string(tok) {
		return fmt.Errorf("%w: token id %d is defined twice", ErrFormat, id)
	}
	b.bytes += len(tok) - len(b.toks[id])
	if b.bytes > maxBlobBytes {
		return fmt.Errorf("%w: more than %d bytes of tokens", ErrTooLarge, maxBlobBytes)
	}
	b.toks[id] = tok
	return nil
}

// add registers an added token whose bytes are tok.
func (b *builder) add(a Added, tok []byte) error {
	if a.Content == "" {
		return nil
	}
	if len(b.added) >= maxAdded {
		return fmt.Errorf("%w: more than %d added tokens", ErrTooLarge, maxAdded)
	}
	if err := b.set(int64(a.ID), tok, true); err != nil {
		return err
	}
	b.added = append(b.added, a)
	return nil
}

// finish lays the tokens down in one table.
func (b *builder) finish(v *Vocab) error {
	if len(b.toks) == 0 {
		return fmt.Errorf("%w: no tokens", ErrFormat)
	}
	v.blob = make([]byte, 0, b.bytes)
	v.offs = make([]uint32, 1, len(b.toks)+1)
	for _, t := range b.toks {
		v.blob = append(v.blob, t...)
		v.offs = append(v.offs, uint32(len(v.blob)))
	}
	v.special = make([]uint64, (len(b.toks)+63)/64)
	for _, a := range b.added {
		v.special[a.ID>>6] |= 1 << (a.ID & 63)
	}
	v.added = newAddedSet(b.added, &v.norm)
	return nil
}
