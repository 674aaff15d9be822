// Package sessions remembers where each session's last request went, in a bounded table
// that replicas merge. It knows keys and endpoints' numbers: no request, no pool, no choice.
//
// Concurrency: a [Table] is safe for concurrent use.
package sessions
