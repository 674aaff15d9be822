// Package e2e tests the complete daemon behind a real Envoy, with simulated engines that publish
// real KV-cache events. It contains only tests.
//
//  1. A rig starts engines, one or more replicas and an Envoy on loopback.
//  2. A workload client sends requests through Envoy. It compares every answer, and the body that
//     the engine received, with the expected bytes.
//  3. At the end a rig asserts that no request is in flight, no goroutine is left, no part has
//     logged a warning, and Envoy counted no protocol error.
//  4. A party is a rig whose replicas are processes that share by gossip and are killed, rolled and
//     restarted. A blend (build tag mixed) runs replicas of two releases.
package e2e
