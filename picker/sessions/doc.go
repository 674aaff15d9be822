// Package sessions records the endpoint of each session's last request, in a bounded table that
// replicas merge. It handles only keys and endpoint numbers.
//
// Concurrency: a [Table] is safe for concurrent use.
package sessions
