// Package demo contains the demos. Each shows one property with simulated engines, several replicas
// and a real Envoy:
//
//   - [RunHA] kills, restarts and replaces replicas under load.
//   - [RunFaults] makes engines fail in different ways.
//   - [RunQuality] compares numbers of replicas, with and without sharing.
//   - [RunFlow] and [RunBatch] saturate the engines.
//   - [RunPD] separates prefill from decode.
//   - [RunSoak] watches the resources of replicas over a long time.
//
// Package live contains the demo of the README.
package demo
