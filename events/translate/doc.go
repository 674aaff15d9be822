// Package translate turns the events of one engine into changes of the prefix index: it maps engine
// hashes and token ids to block keys.
//
//  1. Translator.Translate processes the events of a decoded batch in order. Events
//     that are irrelevant to the prefix index are counted and skipped (admit.go).
//  2. The root of a chain is derived from model, adapter and salt (scope.go). Below
//     it, each block's token ids become text or bytes, and a key (translate.go).
//  3. Stores with an unknown parent wait for it (park.go). Pages smaller than a
//     unit are merged (pages.go). Blocks that may hold generated tokens are checked
//     against the remembered text before them (tails.go).
//  4. Cache groups other than the one with full attention are marks on its chains,
//     each with a rule (groups.go). If a group's blocks are smaller, several of
//     them form one mark (pieces.go).
//  5. The operations are appended to a block.Delta, which the caller applies
//     before the next batch.
//
// It reads parents from the index and never writes to it.
//
// Invariants: the state that a stream can cause is bounded. Equal batches in equal order give equal
// deltas.
//
// A Translator must be used by one goroutine at a time.
package translate
