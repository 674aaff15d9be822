// Package vocab turns token ids into the bytes they stand for, and text into
// token ids, for the vocabularies that engines serve.
//
// The way of a vocabulary through the package:
//
//  1. Load reads tokenizer.json, tekken.json or a *.tiktoken file and checks
//     every size and id on the way (load*.go).
//  2. AppendToken and AppendTokens are look-ups in one flat table (vocab.go).
//     The bytes of consecutive tokens, put together, are the "text space" in
//     which prompts and cached blocks are compared.
//  3. Prepare brings a prompt's text into that space: normalisation, dummy
//     prefix, white space that added tokens swallow (prepare.go).
//  4. Encode is the exact tokenizer: added tokens (added.go), splitting
//     (package split), byte-pair merges (bpe.go).
//  5. Canonical and BoundarySafe answer the two questions that text-space
//     matching leaves open (canonical.go).
//
// What it does not do: chat templates, JSON request bodies, training, Unigram
// or WordPiece encoding (their ids decode; Encode reports itself unavailable).
//
// A Vocab is immutable once loaded and safe for concurrent use. Nothing here
// panics on a malformed file or text, and every file is bounded (limits.go).
package vocab
