// Package monitor runs the health of a pool: it feeds package health with what
// this replica and the others see, and tells the pool and people the result.
//
//  1. Every 100 ms it takes each endpoint's Evidence: the requests in flight, how
//     its metrics page was last read (Read), how probes ended.
//  2. What is out of the ordinary is told to the other replicas, as one absolute
//     value per endpoint; theirs come in by Merge.
//  3. One health.Set moves all states on; Pool.SetHealth makes the snapshot what
//     decisions go by. Each change is one line in the log.
//  4. Endpoints that are not healthy are probed with a request for eight tokens, by
//     the replica whose turn it is.
//
// It does not choose endpoints and judges no request: requests watch themselves,
// in package picker.
//
// Open starts goroutines; Close stops them and waits. All methods are safe for
// concurrent use.
package monitor
