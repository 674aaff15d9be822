// Package lateness measures how late a replica's own timers run, and decides whether the replica
// leaves its group because it has too little processor time.
//
// A timer that runs late shows how long other goroutines of the process wait too: those that serve
// requests. No absolute value says that leaving helps. On a busy node all replicas are late, and the
// requests of one that leaves make the others later. So a replica leaves only while most of the
// other ready replicas are much less late than it is.
//
// [Meter] and [Judge] have no clock, goroutine or lock.
package lateness
