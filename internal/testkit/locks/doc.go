// Command locks reports calls that must not happen while a mutex is held, or on the path of
// a request: I/O, logging, and callbacks into other packages.
//
//	go run ./internal/testkit/locks
//
// It builds the SSA form of the module's product packages and a call graph by variable type
// analysis. In each function it follows which mutexes may be held, and for each call under a
// mutex it looks for the sinks that the call can reach. Mutexes are told apart by type and
// field, not by instance. A finding that is not listed in accepted.txt fails, and so does a
// line of accepted.txt that no finding matches.
//
// What it cannot see: bodies of packages outside of the module, of which only the known
// sinks count; functions reached through reflection; locks other than those of package sync.
package main
