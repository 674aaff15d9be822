// Package hostile attacks the real program behind a real Envoy, within 512 MiB, and
// asks honest requests beside. It holds tests only; make test-hostile runs them.
//
//  1. A cage runs the program in a memory cgroup, or samples its memory and kills
//     it where there are no cgroups (cage_test.go).
//  2. A process of its own holds the engines, one of them a liar when it is told to,
//     and asks the honest requests (honest_test.go).
//  3. A rig opens both and an Envoy; the attackers' process then gives way to all of
//     these on the processors, so that times tell what attacks cost the program and
//     not what it costs to attack (rig_test.go).
//  4. Each attack runs beside honest requests; afterwards the program must be
//     alive, honest requests must have been served, and what was refused must be
//     counted (hostile_test.go, attacks_test.go).
//  5. TestSidecar floods the program as a sidecar, without an Envoy (sidecar_test.go).
//
// Times are printed and never judged: the machine has other things to do.
package hostile
