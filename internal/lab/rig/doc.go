// Package rig starts what demos, benchmarks and soaks need on one machine: simulated
// engines in this process, replicas and an Envoy as child processes, and the ways in
// which replicas share.
//
// The main path: New writes a model's files, OpenEngines, StartReplicas and StartEnvoy
// start the parts, or Open all of them as a Stage. Children die with their parent,
// whatever ends it. What is shown and measured is up to the callers; nothing here knows
// of a workload.
package rig
