// Command mutants checks that tests detect faults. It makes one small change to the program at a
// time, in an overlay seen only by the compiler, and runs the tests that should fail. There are two
// sources of changes: a list, and random mutations.
//
//	go run ./internal/testkit/mutants [-only WORD] [-part 2/6] [list]
//
// The list has a block of lines per change: its name after "==", the file, the tests as arguments
// of go test, the old text after "-" and the new text after "+". The old text must occur exactly
// once in the file. The command prints a table. It fails if a change survives or can no longer be
// applied.
//
//	go run ./internal/testkit/mutants -random 40 [-seed COMMIT] [-only picker/*.go] [-kind copied] [-run TestStatus] [-for 5m]
//	go run ./internal/testkit/mutants -rules
//
// Random mutations change operators, conditions and results, or drop a copied field. All mutations of a
// run are compiled at once, each behind a switch. Every test first runs without a mutation, and
// records which mutations it reaches. Only these tests run later. A mutation is caught if they fail
// twice in a row, and survives if they pass twice, because one run may be slow. The file equivalent.txt lists mutations that change no behaviour.
//
// Some mutations remove or invert a rule of code for budgets and admission (the variable strict names the
// files). A survivor among them fails the command; -rules tries all of them.
package main
