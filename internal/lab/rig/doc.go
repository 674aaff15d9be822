// Package rig starts the parts of demos, benchmarks and soaks on one machine: simulated engines in
// this process, replicas and an Envoy as child processes, and the services with which replicas
// share state.
//
// The main path: New writes a model's files. OpenEngines, StartReplicas and StartEnvoy start single
// parts; Open starts all parts as a Stage. Children end with their parent, even if it is killed.
// The package contains no workload and no measurements.
package rig
