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
// What it does not do: read or write JSON (package pyjson), or know filters,
// methods and templates (package jinja).
//
// Invariants: strings are not copied; whoever gives bytes keeps them unchanged.
// Lists and dicts are references that templates do not change. Where Python
// would raise, an operation ends with a failure, which package jinja and
// package pyjson turn into an error at their edges.
//
// Nothing here is locked: values that nobody changes any more are safe for
// concurrent use.
package value
