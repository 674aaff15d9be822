package vocab

import (
	"bytes"
	_ "embed"
	"strings"
)

//go:embed words.txt
var wordList string

// Special tokens, in order of their ids.
const (
	EndOfText = "<|endoftext|>"
	ImStart   = "<|im_start|>"
	ImEnd     = "<|im_end|>"
)

var specials = [...]string{EndOfText, ImStart, ImEnd}

// Name is the model name that the built-in vocabulary is served under by
// default.
const Name = "grapevine-sim"

// Vocabulary encodes text. It is immutable, and safe for concurrent use.
type Vocabulary struct {
	words []string // plain lower-case words, without repetition
	nodes []node   // nodes[0] is the space; nodes[i] has id 255+i
	text  []string // bytes of each token id
	end   uint32
}

// node is a prefix of " word": the edge by letter leads to a longer one; 0 if there is none.
type node [26]int32

// New builds the vocabulary.
func New() *Vocabulary {
	v := &Vocabulary{nodes: make([]node, 1)}
	for b := range 256 {
		v.text = append(v.text, string([]byte{byte(b)}))
	}
	seen := map[string]bool{}
	for _, w := range strings.Fields(wordList) {
		if !seen[w] && plain(w) {
			seen[w] = true
			v.words = append(v.words, w)
		}
	}
	for depth := 0; v.grow(depth); depth++ {
	}
	v.text = append(v.text, specials[:]...)
	v.end = v.special(ImEnd)
	return v
}

func plain(w string) bool {
	return strings.IndexFunc(w, func(r rune) bool { return r < 'a' || r > 'z' }) < 0
}

// grow adds the nodes for letter number depth of every word, so that ids are
// in order of length. It returns false when no word is that long.
func (v *Vocabulary) grow(depth int) bool {
	grown := false
	for _, w := range v.words {
		if len(w) <= depth {
			continue
		}
		grown = true
		at := int32(0)
		for _, c := range []byte(w[:depth]) {
			at = v.nodes[at][c-'a']
		}
		if v.nodes[at][w[depth]-'a'] == 0 {
			v.nodes[at][w[depth]-'a'] = int32(len(v.nodes))
			v.nodes = append(v.nodes, node{})
			v.text = append(v.text, " "+w[:depth+1])
		}
	}
	return grown
}

func (v *Vocabulary) special(s string) uint32 {
	for i, name := range specials {
		if name == s {
			return uint32(len(v.text) - len(specials) + i)
		}
	}
	return 0
}

// Words returns the words that are one token behind a space. It must not be
// modified.
func (v *Vocabulary) Words() []string { return v.words }

// Size returns the number of token ids.
func (v *Vocabulary) Size() int { return len(v.text) }

// End returns the id of the token that ends an answer.
func (v *Vocabulary) End() uint32 { return v.end }

// AppendTokens appends the token ids of text to dst. It recognises special tokens in the text. The
// vocabulary adds no special tokens itself, for any value of special.
func (v *Vocabulary) AppendTokens(dst []uint32, text []byte, special bool) []uint32 {
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == ' ':
			id, n := v.walk(text[i+1:])
			dst = append(dst, id)
			i += 1 + n
		case c == '<' && v.isSpecial(text[i:]) != "":
			s := v.isSpecial(text[i:])
			dst = append(dst, v.special(s))
			i += len(s)
		default:
			dst = append(dst, uint32(c))
			i++
		}
	}
	return dst
}

func (v *Vocabulary) isSpecial(text []byte) string {
	for _, s := range specials {
		if bytes.HasPrefix(text, []byte(s)) {
			return s
		}
	}
	return ""
}

// walk follows the letters behind a space as far as there are tokens, and
// returns the id reached and the letters it covers.
func (v *Vocabulary) walk(text []byte) (id uint32, n int) {
	at := int32(0)
	for ; n < len(text) && text[n] >= 'a' && text[n] <= 'z'; n++ {
		next := v.nodes[at][text[n]-'a']
		if next == 0 {
			break
		}
		at = next
	}
	if at == 0 {
		return ' ', 0
	}
	return uint32(255 + at), n
}

// AppendText appends the bytes of tokens to dst. Unknown ids have no bytes.
func (v *Vocabulary) AppendText(dst []byte, tokens []uint32) []byte {
	for _, id := range tokens {
		if int(id) < len(v.text) {
			dst = append(dst, v.text[id]...)
		}
	}
	return dst
}
