// Package scrape reads the gauges that engines publish about themselves:
// queue, running requests, KV-cache use, block size and number, adapters,
// process start. It keeps each endpoint's endpoint.Gauges fresh.
//
// The main path:
//
//  1. Poller.Apply is told the pool's endpoints (endpoint.Pool.Subscribe).
//  2. One goroutine looks at all endpoints many times a second and starts a
//     reading of each that is due: at Options.Slow, at Options.Fast while
//     Options.Demand asks for it, later after errors, at once after Refresh.
//  3. A reading is one GET over a kept connection. Scanner picks a dozen
//     series from the page while it streams by; no page is held.
//  4. The sample goes into Endpoint.SetGauges with the time at which the
//     answer's first byte arrived, so that every user sees how old it is.
//
// In-flight accounting leads and gauges follow: nothing on a request's path
// waits for this package.
//
// Invariants: never more than one request in flight per endpoint; a reading
// rests at least four times as long as it took; a page is read up to a bound
// and a line up to the buffer; a failed reading leaves the last sample, whose
// age tells.
//
// Several series of one gauge (data-parallel ranks behind one page) are added
// for queues and averaged for the KV use; how many ranks there are is read from the labels of
// the waiting gauge. Values that are no
// finite number, or negative, are left out and counted.
//
// A Scanner belongs to one goroutine at a time; a Poller is safe for
// concurrent use.
package scrape
