// Package jinja renders chat templates: Jinja2 as model repositories use it, with Python's
// semantics, fast enough for the path of every request.
//
//  1. Parse builds a tree of the source with package syntax, and looks up the filters and
//     tests that the tree uses (template.go).
//  2. Render walks the tree over values (exec.go, loop.go, macro.go for statements, eval.go
//     and calls.go for expressions) and appends to the caller's buffer. Printed concatenations
//     are written part by part.
//  3. Filters (filters*.go), tests (tests.go), methods (methods*.go) and global functions
//     (globals.go) are one table each.
//
// Supported: if, for (else, condition, break, continue, recursion), set (blocks, tuples,
// namespaces), with, macro, call, filter, raw and generation blocks; all operators, slices,
// conditional expressions; the filters, tests, functions and methods of str, dict and list that
// published chat templates use.
//
// Unsupported statements (include, import, extends) are an error of Parse. Unsupported filters,
// tests, functions and methods (variable arguments, the entries of leftMethods)
// are an error of Render when they are reached. Both errors wrap ErrUnsupported and
// name the construct.
//
// Invariants: a Template is immutable and safe for concurrent use. If Python would raise an
// exception (adding None to a string, an undefined attribute's attribute, raise_exception), Render
// returns an error and never guesses. Output, nesting, memory and work are bounded; work counts
// elements and bytes. A rendering stops when its context ends.
package jinja
