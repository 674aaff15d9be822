// Package jinja renders chat templates: Jinja2 as model repositories use it,
// with Python's semantics, fast enough to run on the path of every request.
//
// The way of a template through the package:
//
//  1. Parse has package syntax make a tree of the source, and looks up the
//     filters and tests that the tree uses (template.go).
//  2. Render walks the tree over values (exec.go, loop.go, macro.go for
//     statements, eval.go and calls.go for expressions) and appends to the
//     caller's buffer. Concatenations that are printed are written part by part.
//  3. Filters (filters*.go), tests (tests.go), methods (methods*.go) and global
//     functions (globals.go) are one table each.
//
// What it covers: if, for (else, condition, break, continue, recursion), set
// (blocks, tuples, namespaces), with, macro, call, filter, raw and generation
// blocks; all operators, slices, conditional expressions; the filters, tests,
// functions and methods of str, dict and list that published chat templates use.
//
// Statements that it does not have (include, import, extends) are an error of Parse.
// Filters, tests, functions and methods that it does not have (escaping, variable
// arguments, what leftMethods and leftGlobals list) are an error of Render, once they are
// reached. Both wrap ErrUnsupported and name the construct.
//
// Invariants: a Template is immutable and safe for concurrent use. Whatever
// Python would refuse (adding None to a string, an undefined attribute's
// attribute, raise_exception) is an error of Render, never a guess. Output,
// nesting, memory and work are bounded; work counts elements and bytes. A
// rendering ends when its context does.
package jinja
