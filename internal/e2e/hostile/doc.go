// Package hostile attacks the real program behind a real Envoy within 512 MiB of memory, while
// honest clients send requests. It contains only tests; make test-hostile runs them.
//
//  1. A cage runs the program in a memory cgroup. Without cgroups it samples the memory and kills
//     the program above the limit (cage_test.go).
//  2. Another process runs the engines and the honest clients. One engine answers as the test
//     instructs (honest_test.go).
//  3. A rig opens both and an Envoy. The attackers' process then lowers its own priority, so that
//     latencies show the cost of attacks for the program and not the cost of attacking (rig_test.go).
//  4. Each attack runs together with honest requests. Afterwards the program must be alive, honest
//     requests must have been served, and refusals must be counted (hostile_test.go, attacks_test.go).
//  5. TestSidecar floods the program as a sidecar without an Envoy (sidecar_test.go).
//
// Latencies are printed and do not fail a test, because they depend on the machine.
package hostile
