// Package filter is what one cluster tells another of the prefixes that are hot in a pool
// of it: a filter of about two bytes for a block, which says nothing to anybody else.
//
//   - [Secret] makes keys: chained hashes of a prompt's chunks ([Secret.Chain]), which are
//     never those of a cluster's own index, and the key of each pair's filter.
//   - [Hot] is the exporter's set of blocks that were asked for last.
//   - [Source] is the filter of that set for one importer. It tells what has changed since
//     a [Position] in parts of bounded size.
//   - [Sink] is the importing end. Its [Filter] is read while it is changed.
//
// A filter that is wrong sends a request on a detour; it never causes an error. The
// package does no I/O, starts nothing and has no clock.
package filter
