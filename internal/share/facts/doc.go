// Package facts is what each replica of a group tells the others of itself: what it has
// in flight (Load), how fast it found engines to be (Costs), who waits for room
// (Queues), where requests and sessions went (Hints), which models it uses (Setup) and
// the seed of the index's keys (Seeds).
//
// Each is small and absolute: the newest value of a replica replaces its last one, and
// what a replica said is forgotten when it is gone (Origins). A value that cannot be
// read is an error of that value and changes nothing.
//
// All exported methods are safe for concurrent use unless they say otherwise. Nothing
// starts a goroutine but the methods named Run.
package facts
