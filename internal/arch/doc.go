// Package arch keeps the shape of the code: which package may import which,
// and the sizes and habits that the project agreed on.
//
//  1. Load reads a source tree, without type information and without building
//     anything, in well under a second.
//  2. Check runs every rule over it and returns findings, sorted by place.
//  3. The test of this package runs both over the repository, and over small
//     trees in testdata that break each rule.
//
// A new package gets a row in table.go. The rules look at syntax alone, so
// they may be fooled by somebody who wants to; they are here for those who do
// not.
package arch
