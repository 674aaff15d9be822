package vocab

import (
	"encoding/binary"
	"slices"

	"github.com/grapevine-epp/grapevine/internal/prompt/vocab/split"
)

// Mode is how a vocabulary's token strings map to bytes.
type Mode uint8

// Modes.
const (
	ModeBytes     Mode = iota // token strings are raw bytes (tiktoken, tekken)
	ModeByteLevel             // GPT-2's printable alphabet for the 256 bytes
	ModeSPM                   // SentencePiece style: U+2581 for space, <0xHH> for bytes
)

// String returns the mode's name as status pages show it.
func (m Mode) String() string {
	switch m {
	case ModeByteLevel:
		return "byte-level"
	case ModeSPM:
		return "sentencepiece"
	default:
		return "bytes"
	}
}

// Vocab is one loaded vocabulary. It is immutable and safe for concurrent
// use.
type Vocab struct {
	mode    Mode
	blob    []byte   // the bytes of all tokens, by id
	offs    []uint32 // len = number of ids + 1
	special []uint64 // bit per id: added or special token

	added *addedSet
	norm  normalizer
	bpe   *bpe // nil when Encode is unavailable
	pat   *split.Pattern

	bosIDs, eosIDs []uint32 // added around a text by the post-processor
	notes          []string // why something is not exact or not available
	lossy          string   // the text that tokens do not represent, "" for none
}

// Lossy returns the reason why the bytes of a text's tokens differ from the text, or "". The blocks
// of a lossy vocabulary cannot be found by text.
func (v *Vocab) Lossy() string { return v.lossy }

// Size returns the number of ids, holes included.
func (v *Vocab) Size() int { return len(v.offs) - 1 }

// Mode returns how token strings map to bytes.
func (v *Vocab) Mode() Mode { return v.mode }

// Notes lists, in human-readable form, the features of this vocabulary that are inexact or
// unavailable.
func (v *Vocab) Notes() []string { return v.notes }

// AppendToken appends the bytes of one token: its text for ordinary tokens,
// the literal content for added and special ones. It returns false, and dst
// as it was, for an id that the vocabulary does not have.
func (v *Vocab) AppendToken(dst []byte, id uint32) ([]byte, bool) {
	if uint64(id)+1 >= uint64(len(v.offs)) {
		return dst, false
	}
	a, b := v.offs[id], v.offs[id+1]
	if a == b {
		return dst, false
	}
	return append(dst, v.blob[a:b]...), true
}

const wordBytes = 8

// AppendTokens appends the bytes of ids in order. It returns false, and dst unchanged, if an id is
// unknown. It allocates only to grow dst.
func (v *Vocab) AppendTokens(dst []byte, ids []uint32) ([]byte, bool) {
	start := len(dst)
	dst = slices.Grow(dst, wordBytes*len(ids)+wordBytes)
	offs, blob := v.offs, v.blob
	for _, id := range ids {
		if uint64(id)+1 >= uint64(len(offs)) {
			return dst[:start], false
		}
		a, b := offs[id], offs[id+1]
		if a == b {
			return dst[:start], false
		}
		// Most tokens are short, so eight bytes are copied at once. The next token overwrites the
		// excess bytes.
		if n, next := len(dst), blob[a:]; b-a <= wordBytes && len(next) >= wordBytes && cap(dst)-n >= wordBytes {
			dst = dst[:n+wordBytes]
			binary.LittleEndian.PutUint64(dst[n:], binary.LittleEndian.Uint64(next))
			dst = dst[:n+int(b-a)]
			continue
		}
		dst = append(dst, blob[a:b]...)
	}
	return dst, true
}

// TokenLen returns the number of bytes of a token, 0 for an unknown id.
func (v *Vocab) TokenLen(id uint32) int {
	if uint64(id)+1 >= uint64(len(v.offs)) {
		return 0
	}
	return int(v.offs[id+1] - v.offs[id])
}

// token returns the bytes of a known id.
func (v *Vocab) token(id uint32) []byte { return v.blob[v.offs[id]:v.offs[id+1]] }

// IsAdded reports whether id is an added or special token. Such tokens are matched in text first.
func (v *Vocab) IsAdded(id uint32) bool {
	return int(id>>6) < len(v.special) && v.special[id>>6]&(1<<(id&63)) != 0
}

// BOS returns the ids that the post-processor adds before a text with special tokens. The caller
// must not modify the slice.
func (v *Vocab) BOS() []uint32 { return v.bosIDs }

// EOS returns the ids that the post-processor adds after a text with special tokens. The caller
// must not modify the slice.
func (v *Vocab) EOS() []uint32 { return v.eosIDs }

// CanEncode reports whether Encode works for this vocabulary. Notes contains the reason if it does
// not.
func (v *Vocab) CanEncode() bool { return v.bpe != nil && v.pat != nil }
