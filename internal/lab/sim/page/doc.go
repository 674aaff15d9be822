// Package page renders the metrics page of a simulated engine, with the names and approximate size
// of a real one. It also holds the counters: work of a core ([Meter]) and HTTP requests
// ([HTTPMeter]). It runs no server.
//
// Concurrency: meters are safe for concurrent use, and so is a page once it is laid out.
package page
