// Package monitor drives the health state of a pool. It feeds package health with the observations
// of all replicas and publishes the result to the pool, the log and metrics.
//
//  1. Every 100 ms it collects each endpoint's Evidence: in-flight requests, the
//     last reading of the metrics page (Read), probe results.
//  2. Unusual evidence is sent to the other replicas as one absolute value per
//     endpoint. Their evidence arrives through Merge.
//  3. One health.Set advances all states. Pool.SetHealth publishes the snapshot that
//     decisions use. Each change is logged once.
//  4. Endpoints that are not healthy are probed with a request for eight tokens, by
//     the replica whose turn it is.
//
// It neither chooses endpoints nor judges requests; package picker watches requests.
//
// Open starts goroutines; Close stops them and waits. All methods are safe for concurrent use.
// concurrent use.
package monitor
