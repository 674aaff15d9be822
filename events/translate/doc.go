// Package translate turns the events of one engine into changes of the prefix
// index: engine hashes and token ids go in, block keys come out.
//
//  1. Translator.Translate takes the events of a decoded batch in order; what does
//     not concern the prefix index is counted and left out (admit.go).
//  2. The root of a chain is made of model, adapter and salt (scope.go); below it
//     each block's token ids become text, or bytes, and its key (translate.go).
//  3. Stores whose parent is not known wait for it (park.go); pages smaller than a
//     unit are merged (pages.go); blocks that may hold generated tokens are judged
//     by what is remembered of the text before them (tails.go).
//  4. Cache groups besides the one with full attention are marks on its chains, with a
//     rule each (groups.go); where its blocks are smaller, several of them are one mark
//     (pieces.go).
//  5. The operations are appended to an block.Delta, which the caller applies
//     before the next batch.
//
// It reads the index for parents and never writes to it.
//
// Invariants: what a stream can make a translator keep has a bound; equal batches in
// equal order give equal deltas.
//
// A Translator belongs to one goroutine at a time.
package translate
