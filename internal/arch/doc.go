// Package arch checks the import rules of the code: which package may import which,
// which packages are pure, and a few habits that linters cannot check.
//
//  1. [Load] parses a source tree without type information, in well under a second.
//  2. [Check] runs every rule over the tree and returns the violations, sorted by path
//     and line. [Summary] describes the tree's size.
//  3. The tests run both over the repository, and over small trees in testdata that
//     break each rule.
//
// A new package needs a row in table.go. Sizes are printed and never enforced. The linter checks
// init functions and skipped tests (.golangci.yml).
package arch
