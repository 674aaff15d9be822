// Package gonja renders chat templates by the gonja module: the complete engine
// behind package jinja, for templates with constructs that jinja leaves out. It
// is slower by an order of magnitude.
//
// Where gonja differs from Python it is mended: tojson writes as json.dumps
// does, lists can be indexed from the end, and white space is what Python calls
// so. What it cannot be brought to do is in its own error, or in a difference
// that tests against package jinja name.
//
// Invariants: a panic of gonja is an error here, and output is bounded.
package gonja
