// Package scrape reads the gauges in engines' metrics pages: queue, running requests, KV-cache use,
// block size and count, adapters, process start. It keeps each endpoint's endpoint.Gauges up to
// date.
//
// How it works:
//
//  1. Poller.Apply receives the pool's endpoints (endpoint.Pool.Subscribe).
//  2. One goroutine checks all endpoints many times a second and starts a reading
//     of each that is due: at Options.Slow, at Options.Fast while Options.Demand
//     is true, later after errors, immediately after Refresh.
//  3. A reading is one GET over a persistent connection. Scanner extracts about
//     a dozen series while the page streams; no page is buffered.
//  4. The sample is passed to Endpoint.SetGauges with the arrival time of the
//     response's first byte, so that every user can compute its age.
//
// Decisions rely on in-flight tracking first; no request waits for this package.
//
// Invariants: at most one request is in flight per endpoint. After a reading, the endpoint rests
// for at least four times the duration of the reading. Page and line sizes are bounded. A failed
// reading keeps the last sample, whose age shows the failure.
//
// Several series of one gauge (data-parallel ranks on one page) are summed for queues and averaged
// for KV use. The labels of the waiting gauge give the number of ranks. Values that are not finite
// or negative are skipped and counted.
//
// A Scanner must be used by one goroutine at a time. A Poller is safe for concurrent use.
package scrape
