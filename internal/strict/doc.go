// Package strict reads configuration files that people write by hand: YAML or
// JSON, with every fault found in one pass and each told with its place.
//
//  1. Parse turns the bytes into a tree that knows lines and columns, and
//     returns its root with the Report that gathers problems.
//  2. The caller walks the tree by asking: Node.Object, Object.Field and the
//     typed getters. What is missing or of the wrong type becomes a Problem and
//     the walk goes on.
//  3. Object.Done reports every field that nobody asked for, with the nearest
//     known name as a hint.
//
// Anchors, aliases and merge keys are understood, within bounds: a document is
// read as a tree, and a tree larger than maxNodes is refused.
//
// The package knows no file format and opens no file. Values are not safe for
// concurrent use.
package strict
