// Package sandbox runs WebAssembly modules that score or filter endpoints, for plugins in any
// language.
//
//  1. [Open] compiles a module once. It adds a step counter to the code (see meter), checks the
//     exports and imports, and starts a first instance, which names the facts that it reads.
//  2. [Module.Score] and [Module.Filter] write these facts into the memory of an instance, call it
//     once for all candidates, and check the result.
//  3. A call that fails costs its instance. After failures in a row, calls pause ([Paused]).
//
// A module has no files, no network, no clock and no randomness. Its memory and the instructions of a
// call are bounded. Modules keep memory between calls, but every concurrent call has an instance of
// its own: state is not shared.
//
// docs/plugins/wasm-scorer.md has the binary interface that modules implement.
package sandbox
