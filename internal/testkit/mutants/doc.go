// Command mutants shows that tests notice faults: it makes one small change to the
// program at a time, in a copy that only the compiler sees, and runs the tests that ought
// to fail because of it.
//
//	go run ./internal/testkit/mutants [-only WORD] [-part 2/6] [list]
//
// The list has a block of lines for each change: its name after "==", the file, the
// tests as they are given to go test, what is replaced after "-" and what by after "+".
// Text in the file is matched exactly and must occur once. It prints a table, and fails when
// a change survives, or is not possible any more.
package main
