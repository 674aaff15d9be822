// Package vocab converts token ids to bytes, and text to token ids, for the vocabularies that
// engines use.
//
//  1. Load reads tokenizer.json, tekken.json or a *.tiktoken file and checks every size and id
//     (load*.go).
//  2. AppendToken and AppendTokens are look-ups in one flat table (vocab.go). The concatenated
//     bytes of tokens form the "text space" in which prompts and cached blocks are compared.
//  3. Prepare converts a prompt's text to text space: normalisation, dummy prefix, white space
//     stripped by added tokens (prepare.go).
//  4. Encode is the exact tokenizer: added tokens (added.go), splitting (package split), byte-
//     pair merges (bpe.go).
//  5. Canonical and BoundarySafe detect the cases in which equal text does not mean equal
//     tokens (canonical.go).
//
// Not included: chat templates, JSON request bodies, training, and Unigram or WordPiece encoding.
// For the latter two, ids decode, but Encode is unavailable.
//
// A Vocab is immutable once loaded and safe for concurrent use. Malformed files and texts cause no
// panics, and the size of every file is bounded (limits.go).
package vocab
