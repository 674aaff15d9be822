// Package lockfree contains the data structures that readers of the index use while a writer
// changes them.
//
// Readers register in Epochs. Identifiers that a writer unlinks wait in a Limbo until no reader can
// still see them. Table is an array that grows concurrently with readers, Keys is such a hash
// table, and Sets holds the interned sets of sources that hold a block.
//
// One writer and any number of readers within an epoch may run concurrently.
package lockfree
