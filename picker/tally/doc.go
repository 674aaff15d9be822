// Package tally counts how requests ended, for metrics that people look at and
// alert on.
//
//  1. Ended takes one placed request: by endpoint, model and status class, and
//     how long it took.
//  2. Refused takes one request that was not placed.
//  3. Collect writes the series. Those of an endpoint are there as long as the
//     endpoint is in the pool.
//
// What users saw is counted apart from what endpoints did: a request that one
// endpoint failed and the next one answered is no error of a user; package monitor
// counts what speaks against endpoints. An answer that ended in the middle may be the client's doing,
// and is an error of neither.
//
// Labels are bounded: a model has a name when some endpoint is known to serve it,
// and at most so many have; all others are "other". It judges nothing: causes are
// the caller's. A Tally is safe for concurrent use.
package tally
