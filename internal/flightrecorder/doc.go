// Package flightrecorder stores what a process did just before something went wrong. One record is
// a .tar.gz archive with goroutine stacks, an execution trace of the last seconds, and documents
// that the caller provides.
//
// Records are made on demand, and by triggers: each trigger makes at most one record per Interval.
// The number and the size of stored records are limited, in memory or in a folder.
package flightrecorder
