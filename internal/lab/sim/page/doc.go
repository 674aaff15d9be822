// Package page is the metrics page of a simulated engine, with the names and about the size
// of a real one, and the figures that it shows: what a core did ([Meter]) and what was asked
// over HTTP ([HTTPMeter]). It serves nothing and runs nothing.
//
// Concurrency: meters are safe for concurrent use, and so is a page once it is laid out.
package page
