// Package split cuts texts into the pieces within which a tokenizer merges
// tokens, exactly as the regular expressions in tokenizer files do.
//
//  1. Find and Named return the Pattern of an expression or of a name
//     (patterns.go). A vocabulary with an unknown one cannot encode.
//  2. Pattern.Split gives a Splitter, which scans by hand: Go's regular
//     expressions have no look-ahead, and a scanner is an order of magnitude
//     faster (splitter.go, words.go).
//  3. Pattern.Boundary tells of a place alone whether pieces always end there,
//     so that nobody needs to start at a text's beginning (boundary.go).
//
// It also brings text into Unicode's normal forms as those tokenizers do, whose
// normaliser is of Unicode 9, and tells quickly where there is nothing to do
// (forms.go).
//
// Characters have the classes of Unicode 16 (classes.go, assigned.go).
//
// Patterns are immutable and safe for concurrent use; a Splitter is not
// shared. No text makes them panic: pieces are never empty and cover all of it.
package split
