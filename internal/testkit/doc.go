// Package testkit waits for conditions and runs a real Envoy for tests.
//
//  1. StartEnvoy writes the configuration to a temporary folder and starts Envoy;
//     address and port of its listeners may be left to the system (port 0).
//  2. It waits until Envoy says that it is live and reads where it listens.
//  3. Stats, Log and Addr look at it; Stop, or the end of the test, ends it.
//
// Await, Eventually and PollUntil wait for what another goroutine or process brings about,
// for HangTimeout at most: a test never says how long something may take.
//
// Envoy dies with the test process even when that is killed. It does not render
// configurations: see extproc/envoyconf. An Envoy may be used by several
// goroutines.
package testkit
