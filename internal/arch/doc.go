// Package arch keeps the shape of the code: which package may import which, how
// large packages are, which of them are pure, and habits that linters cannot check.
//
//  1. Load reads a source tree, without type information and without building
//     anything, in well under a second.
//  2. Check runs every rule over it and returns findings, sorted by place; Summary
//     prints its shape.
//  3. The test of this package runs both over the repository, and over small
//     trees in testdata that break each rule.
//
// A new package gets a row in table.go. The rules look at syntax alone. Sizes of
// files and functions, init functions and skipped tests are the linter's
// (.golangci.yml).
package arch
