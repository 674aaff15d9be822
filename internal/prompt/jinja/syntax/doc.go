// Package syntax parses Jinja2 templates, as model repositories write them, to trees.
//
//  1. The lexer splits the source into data and tags (lexer*.go), with trim_blocks and
//     lstrip_blocks set as in engines.
//  2. The parser builds the tree (parse*.go, ast.go). Names are small integers in the tree,
//     which also lists the filters, tests and methods that it uses.
//  3. The tree answers the questions that engines ask about a template's source before they
//     render it (analyse.go).
//
// The package does not evaluate templates. Package jinja decides which filters, tests and methods
// are supported. Unsupported statements (include, import, extends) are an error that wraps
// ErrUnsupported.
//
// Invariants: a Tree is immutable and safe for concurrent use. Its source and nesting are bounded.
package syntax
