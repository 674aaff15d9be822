// Package outbox is a bounded queue between those who must not wait and the
// one goroutine that does: what finds no room is dropped and counted. Items of
// class core.Live overtake those of core.Bulk.
package outbox
