// Command steps counts what decoders do for each byte that they read: the statements of
// this module that run, as the compiler's coverage counts them.
//
//	go run ./internal/testkit/steps [-only WORD] [-v] [list]
//
// The list has a line for each test that hands inputs to testkit.Linear: its package, its
// name, and how many statements a byte may take. Each input is read with no, with 64 KiB and
// with 256 KiB of what it repeats; the law is that steps are no more than those of the empty
// one and so many for each byte. What the standard library does is not counted; that it is in
// proportion, too, is what the same tests find out by processor time.
package main
