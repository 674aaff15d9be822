// Package coding decodes request bodies that clients compressed: gzip, zstd, deflate and
// br. The size of the result, its ratio to the input and the memory that it takes are
// bounded, because a client chooses them.
//
// The package does no I/O. Everything is safe for concurrent use.
package coding
