// Package demo runs the whole of Grapevine on one machine for a minute: simulated
// engines, several replicas, a real Envoy and a chat workload, and shows
// what happens as a live table.
//
// The main path: Run has a rig start the engines, the replicas and Envoy; it drives the
// same workload first round robin, then through the picker; it kills a replica on the
// way; it ends with a Summary.
//
// With the same parts, RunHA takes replicas away under load, RunQuality compares
// numbers of replicas and the loss of sharing, and RunSoak watches what replicas
// use over a long time.
package demo
