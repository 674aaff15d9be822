// Package jinja renders chat templates: Jinja2 as model repositories use it,
// with Python's semantics, fast enough to run on the path of every request.
//
// The way of a template through the package:
//
//  1. Parse cuts the source into data and tags (lexer*.go), applying trim_blocks
//     and lstrip_blocks as engines configure them, and builds a tree
//     (parse*.go) in which every name is a small integer.
//  2. Render walks the tree (exec.go, eval.go, ops.go) over Values (value.go)
//     and appends to the caller's buffer. Strings are not copied on the way in;
//     concatenations that are printed are written part by part.
//  3. ParseJSON (decode.go) makes Values of a request body without copying
//     strings that hold no escapes; AppendJSON (encode.go) is Python's json.dumps.
//
// What it covers: if, for (else, filter, break, continue), set (blocks, tuples,
// namespaces), macro, call, filter blocks, raw, generation blocks; all operators,
// slices, conditional expressions; the filters, tests and methods of str, dict
// and list that chat templates use. What it does not have (include, import,
// extends, recursive loops) is an error of Parse that wraps
// ErrUnsupported, so that a caller can turn to a complete engine.
//
// Invariants: a Template is immutable and safe for concurrent use. Whatever
// Python would refuse (adding None to a string, an undefined attribute's
// attribute, raise_exception) is an error of Render, never a guess. Output,
// steps and nesting are bounded. Internally errors travel as panics of one
// private type, caught in Parse and Render.
package jinja
