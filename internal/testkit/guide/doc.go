// Package guide reads the shell blocks of a documentation page and the output that the page shows,
// for tests that run them word for word.
//
// HTML comments before a block control its run, and readers do not see them:
//
//   - <!-- background until: TEXT --> starts the block and waits until its output has TEXT.
//   - <!-- on: ENVIRONMENT --> leaves the block to the test with that environment, such as kubernetes.
//   - <!-- not run: REASON --> leaves the block out.
//
// A text block after a shell block shows its output. Every line of it must appear in the real
// output, in order. Numbers other than 0 may differ, and "..." stands for any text.
package guide
