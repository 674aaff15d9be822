package answer

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// ErrDiffers is wrapped by errors of Check.
var ErrDiffers = errors.New("answer: text differs")

// Seed identifies a request's answer. Build one with the functions of this
// package; both ends must use the same.
type Seed uint64

// OfText is the seed of a text prompt.
func OfText(prompt string) Seed { return Seed(xxhash.Sum64String("t" + prompt)) }

// OfTokens is the seed of a prompt given as token ids.
func OfTokens(ids []uint32) Seed {
	d := xxhash.New()
	var b [4]byte
	for _, id := range ids {
		binary.LittleEndian.PutUint32(b[:], id)
		_, _ = d.Write(b[:])
	}
	return Seed(d.Sum64())
}

// OfChat is the seed of a chat.
func OfChat(messages []vocab.Message) Seed {
	d := xxhash.New()
	for _, m := range messages {
		_, _ = d.WriteString(m.Role)
		_, _ = d.WriteString("\x00")
		_, _ = d.WriteString(string(m.Content))
		_, _ = d.WriteString("\x01")
	}
	return Seed(d.Sum64())
}

// With returns the seed for another value of the request's seed parameter and
// another of its choices.
func (s Seed) With(param int64, choice int) Seed {
	if param == 0 && choice == 0 {
		return s
	}
	return Seed(next(next(uint64(s)^uint64(param)*0x9e3779b97f4a7c15) + uint64(choice)))
}

// Length is the number of tokens after which the answer ends by itself: 16 to
// 399.
func (s Seed) Length() int { return 16 + int(next(uint64(s)^0x5bd1e995)%384) }

// Append appends n words of the answer to dst, each at least one token.
func Append(dst []byte, v *vocab.Vocabulary, s Seed, n int) []byte {
	w := writer{words: v.Words(), state: uint64(s)}
	for range n {
		dst = w.word(dst)
	}
	return dst
}

// Check returns an error that wraps ErrDiffers unless text is the beginning of
// the answer.
func Check(v *vocab.Vocabulary, s Seed, text string) error {
	w := writer{words: v.Words(), state: uint64(s)}
	buf := make([]byte, 0, 64)
	for at := 0; at < len(text); at += len(buf) {
		buf = w.word(buf[:0])
		rest := text[at:]
		n := min(len(rest), len(buf))
		if rest[:n] != string(buf[:n]) {
			return fmt.Errorf("%w at byte %d of %d: %.20q, want %q", ErrDiffers, at, len(text), rest, buf)
		}
	}
	return nil
}

type writer struct {
	words []string
	state uint64
	count int
}

// word appends the next word, with the space or full stop before it.
func (w *writer) word(dst []byte) []byte {
	w.state = next(w.state)
	switch {
	case w.count == 0:
	case w.state>>60 == 0:
		dst = append(dst, ". "...)
	default:
		dst = append(dst, ' ')
	}
	w.count++
	return append(dst, w.words[w.state%uint64(len(w.words))]...)
}

// next is a step of SplitMix64.
func next(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
