// Package e2e tests the whole daemon behind a real Envoy, in front of simulated
// engines with real KV-cache events. It holds tests only.
//
//  1. A rig opens engines, one or more replicas and an Envoy, all on loopback.
//  2. A workload client sends requests through Envoy and compares every answer,
//     and the body that the engine saw, with what they must be.
//  3. At the end a rig asserts that nothing is left: requests in flight,
//     goroutines, complaints in any log, protocol errors in Envoy's statistics.
//  4. A party is a rig with replicas in processes of their own that share by
//     gossip, and are killed, rolled and started anew. A blend, with the build tag mixed,
//     is one with replicas of two releases.
package e2e
