// Command locks reports calls that must not happen while a mutex is held, or on the request path:
// I/O, logging, and callbacks into other packages.
//
//	go run ./internal/testkit/locks
//
// It builds the SSA form of the module's product packages and a call graph by variable type
// analysis. In each function it tracks the mutexes that may be held, and for each call under a
// mutex it searches for reachable sinks. Mutexes are identified by type and field, not by instance.
// Findings that are not listed in accepted.txt fail, as do lines of accepted.txt without a finding.
//
// Limitations: packages outside the module count only if they are known sinks; functions called
// through reflection and locks outside package sync are not seen.
package main
