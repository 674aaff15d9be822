// Package syntax reads Jinja2 templates as model repositories write them, and
// makes trees of them.
//
//  1. The lexer cuts the source into data and tags (lexer*.go), applying
//     trim_blocks and lstrip_blocks as engines configure them.
//  2. The parser builds the tree (parse*.go, ast.go). Names are small integers
//     in it; the filters, tests and methods that it uses are listed beside it.
//  3. The tree answers what engines ask of a template's source before they
//     render it (analyse.go).
//
// What it does not do: evaluate, or know which filters, tests and methods
// exist; package jinja does. Statements that no chat template uses (include,
// import, extends, recursive loops) are an error that wraps ErrUnsupported.
//
// Invariants: a Tree is immutable and safe for concurrent use. Its source and
// its nesting are bounded.
package syntax
