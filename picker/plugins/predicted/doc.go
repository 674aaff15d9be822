// Package predicted implements the default policy: the predicted time to first token of each
// candidate, plus the request's cost to others there.
//
//  1. Each candidate's cost is the sum of marginal costs at that candidate alone
//     (scorer.go).
//  2. Candidates at which the request would be later than in a fleet without
//     caches rank behind all others. A single number bounds that time (cold.go).
//  3. A popular prefix is copied to another candidate once the rent paid by
//     requests that stayed reaches the price of a copy (copies.go).
//
// The reasoning is in docs/adr/0017-default-policy-bound.md. Tests in picker/plugins
// (fifo_test.go) cover the proven properties, and a search in internal/lab/replay
// (structure_test.go) the others.
//
// The package learns nothing itself: package endpoint learns the constants of engines and the
// lengths of answers.
//
// A scorer is safe for concurrent use.
package predicted
