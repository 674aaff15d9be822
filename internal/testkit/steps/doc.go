// Command steps counts the work of decoders per input byte: the executed statements of this module,
// as counted by the compiler's coverage.
//
//	go run ./internal/testkit/steps [-only WORD] [-v] [list]
//
// The list has a line per test that passes inputs to testkit.Linear: its package, its name, and the
// number of statements allowed per byte. Each input is read with 0, 64 KiB and 256 KiB of its
// repeated unit. Steps may not exceed the steps of the empty input plus the allowance per byte.
// Statements of the standard library are not counted; the same tests check its linearity by
// processor time.
package main
