// Package predicted is the default policy: the predicted time to first token of
// each candidate, plus what the request costs others there.
//
//  1. Each candidate's cost is the sum of marginal prices at that candidate alone
//     (scorer.go).
//  2. Candidates at which the request would be later than without any cache are
//     put behind all others. How late that would be is known from one number
//     (cold.go).
//  3. A prefix that is asked for often is copied to one more candidate once the
//     rent that requests paid for staying has come to the price of a copy
//     (copies.go).
//
// The argument is in docs/adr/0017-never-later-than-without-caches.md; what is proved
// of it is tested in picker/plugins (fifo_test.go), what is searched in
// internal/lab/replay (structure_test.go).
//
// It learns nothing itself: constants of engines and lengths of answers are those
// of the endpoint package.
//
// Concurrency: a scorer may be used by many goroutines.
package predicted
