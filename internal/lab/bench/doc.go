// Package bench measures a running picker from outside: it plays Envoy's side
// of external processing and reads what the picker's process cost.
//
//  1. Run opens connections to the target and starts a bounded number of
//     streams on them, as fast as answers come or at a given rate.
//  2. Each stream plays the messages that Envoy sends for one chat request in
//     the chosen body mode, checks every answer, and compares the body that
//     comes back byte for byte with the one sent.
//  3. The processor time and memory of the picker are read from /proc before
//     and after, so that a report holds CPU per request.
//  4. Reports, idle measurements and the output of `go test -bench` become
//     rows: a name that stays the same from release to release, a value, a
//     unit and the conditions.
//
// It asserts nothing about speed, starts no picker, and has no Envoy: what the
// proxy adds is measured elsewhere.
//
// The load generator shares the machine with the picker, so throughput and
// latencies are those of both together; CPU per request is the picker's alone.
//
// Run may be called from several goroutines; it waits for all that it started.
package bench
