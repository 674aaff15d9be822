// Package outbox is a bounded queue between producers that must not block and one consumer
// goroutine. Items that do not fit are dropped and counted. Items of class [group.Live] overtake
// those of class [group.Bulk].
package outbox
