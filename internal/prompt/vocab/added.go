package vocab

import (
	"bytes"
	"sort"
	"unicode"
	"unicode/utf8"

	"github.com/grapevine-epp/grapevine/internal/prompt/vocab/split"
)

// addedSet finds added tokens in text. raw matches tokens before normalisation, normal after it,
// and all matches every token in the original text.
type addedSet struct {
	raw, normal, all *matcher
	strips           bool // some token swallows white space
}

func newAddedSet(added []Added, n *normalizer) *addedSet {
	var raw, normal []Added
	s := &addedSet{all: newMatcher(added)}
	for _, a := range added {
		s.strips = s.strips || a.LStrip || a.RStrip
		if !a.Normalized {
			raw = append(raw, a)
			continue
		}
		if a.Content = string(n.apply(nil, []byte(a.Content))); a.Content != "" {
			normal = append(normal, a)
		}
	}
	s.raw, s.normal = newMatcher(raw), newMatcher(normal)
	s.normal.hardSpace = n.hardSpace()
	return s
}

// matcher finds the leftmost longest of a set of strings. Tokens are
// bucketed by their first two bytes.
type matcher struct {
	toks    []Added
	first   [256]bool
	only    int // the first byte if it is the same for all tokens; otherwise -1
	buckets map[uint16][]int32
	single  [256]int32 // token of one byte +1
	// hardSpace: spaces are U+2581 by the time of matching, and not swallowed.
	hardSpace bool
}

// span is one added token found in a text: [start, stop) with the white space
// that it swallows, [lit, lit+len) its literal content.
type span struct {
	start, stop int
	lit         int
	id          uint32
	size        int
}

func newMatcher(toks []Added) *matcher {
	m := &matcher{toks: toks, only: -1, buckets: map[uint16][]int32{}}
	for i, t := range toks {
		m.first[t.Content[0]] = true
		if len(t.Content) == 1 {
			m.single[t.Content[0]] = int32(i) + 1
			continue
		}
		key := uint16(t.Content[0])<<8 | uint16(t.Content[1])
		m.buckets[key] = append(m.buckets[key], int32(i))
	}
	for _, b := range m.buckets {
		sort.SliceStable(b, func(i, j int) bool { return len(toks[b[i]].Content) > len(toks[b[j]].Content) })
	}
	n := 0
	for c, ok := range m.first {
		if ok {
			n++
			m.only = c
		}
	}
	if n != 1 {
		m.only = -1
	}
	return m
}

// candidate returns the next position from i on at which a token may start,
// len(s) when there is none.
func (m *matcher) candidate(s []byte, i int) int {
	if len(m.toks) == 0 {
		return len(s)
	}
	if m.only >= 0 {
		if k := bytes.IndexByte(s[i:], byte(m.only)); k >= 0 {
			return i + k
		}
		return len(s)
	}
	for i < len(s) && !m.first[s[i]] {
		i++
	}
	return i
}

// at returns the longest token at i.
func (m *matcher) at(s []byte, i int) (*Added, bool) {
	if i+1 < len(s) {
		for _, t := range m.buckets[uint16(s[i])<<8|uint16(s[i+1])] {
			if c := m.toks[t].Content; len(s)-i >= len(c) && string(s[i:i+len(c)]) == c {
				return &m.toks[t], true
			}
		}
	}
	if t := m.single[s[i]]; t > 0 {
		return &m.toks[t-1], true
	}
	return nil, false
}

// next finds the first token at or after from. White space to its left is
// swallowed back to from at most.
func (m *matcher) next(s []byte, from int) (span, bool) {
	for i := m.candidate(s, from); i < len(s); {
		t, ok := m.at(s, i)
		if !ok {
			i = m.candidate(s, i+1)
			continue
		}
		stop := i + len(t.Content)
		if t.SingleWord && (endsWithWord(s[:i]) || startsWithWord(s[stop:])) {
			i = m.candidate(s, stop)
			continue
		}
		sp := span{start: i, stop: stop, lit: i, id: t.ID, size: len(t.Content)}
		if t.LStrip {
			sp.start = max(from, i-trailingSpace(s[:i], m.hardSpace))
		}
		if t.RStrip {
			sp.stop += leadingSpace(s[stop:], m.hardSpace)
		}
		return sp, true
	}
	return span{}, false
}

func leadingSpace(s []byte, hard bool) int {
	i := 0
	for i < len(s) {
		n := split.White(s[i:])
		if n == 0 || hard && s[i] == ' ' {
			break
		}
		i += n
	}
	return i
}

func trailingSpace(s []byte, hard bool) int {
	end := len(s)
	for end > 0 {
		r, n := utf8.DecodeLastRune(s[:end])
		if !unicode.Is(unicode.White_Space, r) || hard && r == ' ' {
			break
		}
		end -= n
	}
	return len(s) - end
}

func endsWithWord(s []byte) bool {
	r, n := utf8.DecodeLastRune(s)
	return n > 0 && isWordRune(r)
}

func startsWithWord(s []byte) bool {
	r, n := utf8.DecodeRune(s)
	return n > 0 && isWordRune(r)
}

// isWordRune is the \w of Unicode regular expressions.
func isWordRune(r rune) bool {
	if r == utf8.RuneError {
		return false
	}
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.Is(unicode.Nd, r) || unicode.Is(unicode.Nl, r) ||
		unicode.Is(unicode.Pc, r) || unicode.Is(unicode.Other_Alphabetic, r) || unicode.Is(unicode.Join_Control, r)
}
