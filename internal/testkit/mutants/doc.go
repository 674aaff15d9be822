// Command mutants checks that tests detect faults. It makes one small change to the program at a
// time, in an overlay seen only by the compiler, and runs the tests that should fail.
//
//	go run ./internal/testkit/mutants [-only WORD] [-part 2/6] [list]
//
// The list has a block of lines per change: its name after "==", the file, the tests as arguments
// of go test, the old text after "-" and the new text after "+". The old text must occur exactly
// once in the file. The command prints a table. It fails if a change survives or can no longer be
// applied.
package main
