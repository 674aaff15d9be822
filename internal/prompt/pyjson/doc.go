// Package pyjson reads and writes JSON as Python does, to and from values.
//
// A Decoder reads a document as json.loads reads it (decode.go, and
// decode_text.go for its strings and numbers): the last of duplicate keys
// wins, and keys keep their order. Strings without escapes alias the document.
// A Style writes as json.dumps writes (encode.go).
//
// What it does not do: read a stream, or fill structs.
//
// Invariants: malformed JSON is an error that wraps ErrJSON, and what nests too
// deep one that wraps value.ErrBounds. No input makes it panic.
//
// A Decoder is reused, not shared. Styles are immutable.
package pyjson
