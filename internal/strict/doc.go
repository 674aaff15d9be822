// Package strict reads hand-written configuration files in YAML or JSON. It finds all errors in one
// pass and reports each with its position.
//
//  1. Parse turns the bytes into a tree with lines and columns. It returns the root and the
//     Report that collects problems.
//  2. The caller walks the tree: Node.Object, Object.Field and the typed getters. A missing
//     value or a wrong type becomes a Problem, and the walk continues.
//  3. Object.Done reports every field that was not requested, with the nearest known name as a
//     hint.
//
// Anchors, aliases and merge keys are supported within limits: a document that expands to a tree
// larger than maxNodes is rejected.
//
// The package does not know any file format and does not open files. Values are not safe for
// concurrent use.
package strict
