// Package value implements the Python values that chat templates use. It decodes JSON documents to
// values, computes with values and prints values.
//
// A Value is a small struct that is passed by value: None, bool, int, float, str, list, tuple or
// dict, or Jinja's undefined (value.go). All operations follow Python: str and repr (print.go),
// equality, order and membership (compare.go), arithmetic (arith.go), iteration, indices and slices
// (sequence.go), and white space (space.go). A Dict keeps the order of its keys (dict.go).
//
// A Decoder reads JSON as json.loads does (decode.go, decode_text.go): the last of duplicate keys
// wins, and keys keep their order. Strings without escapes alias the document. A Style writes JSON
// as json.dumps does (encode.go).
//
// The package does not decode streams or fill structs. Filters, methods and templates are in
// package jinja.
//
// Invariants: strings are not copied, so callers must not modify bytes passed in. Lists and dicts
// are references that templates do not change. If Python would raise an exception, an operation
// ends with Raise, which Catch turns into an error in exported functions (raise.go). Malformed JSON
// is an error that wraps ErrJSON; exceeding a bound is an error that wraps ErrBounds. The values of
// a document take at most 96 KiB plus six times its size.
//
// There is no locking: values that are no longer modified are safe for concurrent use.
package value
