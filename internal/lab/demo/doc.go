// Package demo shows one thing at a time with simulated engines, several replicas and a real
// Envoy: RunHA takes replicas away under load, RunFaults makes engines sick, RunQuality
// compares numbers of replicas and the loss of sharing, RunFlow and RunBatch fill the
// engines, RunPD computes prompts elsewhere, and RunSoak watches what replicas use over a
// long time. The demo of the README is in package live.
package demo
