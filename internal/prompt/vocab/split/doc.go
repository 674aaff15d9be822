// Package split divides texts into the pieces within which a tokenizer merges tokens, exactly as
// the regular expressions in tokenizer files do.
//
//  1. Find and Named return the Pattern of an expression or of a name (patterns.go). A
//     vocabulary with an unsupported expression cannot encode.
//  2. Pattern.Split returns a Splitter, a hand-written scanner: Go's regular expressions have
//     no look-ahead, and a scanner is an order of magnitude faster (splitter.go, words.go).
//  3. Pattern.Boundary reports whether pieces always end at a position, so that callers need
//     not start at the beginning of a text (boundary.go).
//
// It also converts text to Unicode's normal forms as the tokenizers' normalisers do, which
// implement Unicode 9, with a fast path for text that needs no change (forms.go).
//
// Characters have the classes of Unicode 16 (classes.go, assigned.go).
//
// Patterns are immutable and safe for concurrent use; a Splitter is not. No text causes a panic:
// pieces are never empty and cover the whole text.
package split
