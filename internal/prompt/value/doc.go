// Package value holds Python's values as chat templates see them: what json
// documents become, what templates compute with, and what they print.
//
// A Value is a small struct that is passed by value: None, bool, int, float,
// str, list, tuple or dict, or Jinja's undefined (value.go). Printing is
// Python's str and repr (print.go), and so are equality, order and membership
// (compare.go), arithmetic (arith.go), iteration, indices and slices
// (sequence.go), and what counts as white space (space.go). A Dict keeps the
// order of its keys (dict.go).
//
// A Decoder reads JSON as json.loads does (decode.go, decode_text.go): the last
// of duplicate keys wins, and keys keep their order. Strings without escapes
// alias the document. A Style writes JSON as json.dumps does (encode.go).
//
// What it does not do: read a stream, fill structs, or know filters, methods and
// templates (package jinja).
//
// Invariants: strings are not copied; whoever gives bytes keeps them unchanged.
// Lists and dicts are references that templates do not change. Where Python
// would raise, an operation ends with Raise, which Catch turns into an error in
// the functions that are called from outside (raise.go). Malformed JSON is an
// error that wraps ErrJSON; what exceeds a bound is one that wraps ErrBounds. The
// values of a document take at most 96 KiB and six times its size.
//
// Nothing here is locked: values that nobody changes any more are safe for
// concurrent use.
package value
