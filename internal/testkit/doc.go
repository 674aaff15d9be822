// Package testkit waits for conditions and runs a real Envoy for tests.
//
//  1. StartEnvoy writes the configuration to a temporary folder and starts Envoy. Listeners
//     may use port 0.
//  2. It waits until Envoy reports that it is live, and reads the addresses of its listeners.
//  3. Stats, Log and Addr inspect it. Stop, or the end of the test, ends it.
//
// Await, Eventually and PollUntil wait for conditions that other goroutines or processes bring
// about, for at most HangTimeout. Tests do not set their own timeouts.
//
// Envoy dies with the test process even if that is killed. Package extproc/envoyconf renders
// configurations. An Envoy is safe for concurrent use.
package testkit
