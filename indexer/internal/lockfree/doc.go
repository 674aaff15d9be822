// Package lockfree holds what readers of the index see while a writer changes it.
//
// Readers announce themselves in Epochs; what a writer takes out of sight waits in a
// Limbo until no reader can be left that saw it. Table is an array that grows under
// its readers, Keys a hash table that does so, and Sets are the interned sets of sources that hold a block.
//
// Concurrency: one writer, any number of readers inside an epoch.
package lockfree
