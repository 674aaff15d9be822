// Package filter is the data structure with which one cluster shares the hot prefixes of a pool
// with another cluster. It is a filter of about two bytes per block that is meaningless without its
// key.
//
//   - [Secret] makes keys: chained hashes of a prompt's chunks ([Secret.Chain]), unrelated to
//     the keys of a cluster's own index, and the key of each pair's filter.
//   - [Hot] is the exporter's set of recently requested blocks.
//   - [Source] is the filter of that set for one importer. It provides the changes since a
//     [Position] in parts of bounded size.
//   - [Sink] is the importing end. Its [Filter] may be read while it changes.
//
// An incorrect filter sends a request on a detour; it never causes an error. The package does no
// I/O, starts no goroutines and has no clock.
package filter
