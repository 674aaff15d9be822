// Package bench measures a running picker from outside. It plays Envoy's side of external
// processing and reads the resources that the picker's process uses.
//
//  1. Run opens connections to the target and starts a bounded number of streams, either as
//     fast as answers arrive or at a given rate.
//  2. Each stream plays the messages that Envoy sends for one chat request in the chosen body
//     mode, checks every answer, and compares the returned body byte for byte with the sent one.
//  3. The CPU time and memory of the picker are read from /proc before and after, so a report
//     contains CPU per request.
//  4. Reports, idle measurements and the output of `go test -bench` become rows: a name that
//     stays the same between releases, a value, a unit and the conditions.
//
// It does not check speed and starts neither a picker nor an Envoy, so the cost of the proxy is not
// included.
//
// The load generator shares the machine with the picker, so throughput and latencies apply to both
// together. CPU per request is the picker's alone.
//
// Run is safe for concurrent use. It waits for all goroutines that it started.
package bench
