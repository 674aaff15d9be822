// Package hostile attacks the real program behind a real Envoy, within 512 MiB, and
// asks honest requests beside. It holds tests only; make test-hostile runs them.
//
//  1. A cage runs the program in a memory cgroup, or samples its memory and kills
//     it where there are no cgroups (cage_test.go).
//  2. A rig opens engines, an engine that lies, the caged program and an Envoy
//     (rig_test.go).
//  3. Each attack runs beside honest requests; afterwards the program must be
//     alive, honest requests must have been served, and what was refused must be
//     counted (hostile_test.go, attacks_test.go).
//
// Times are printed and never judged: the machine has other things to do.
package hostile
