// Package monotime reads the monotonic clock, which no clock adjustment changes.
//
// Ages that are stored as numbers, such as Unix nanoseconds in an atomic, are wrong when the
// machine's clock is set between two readings: an engine that should be avoided for a second is
// avoided for an hour. [Now] is the wall clock at process start plus the time that has passed
// since then, so differences of its values are durations.
//
// Times that other machines or people read (signatures, certificates, logs, recordings) use
// [time.Now].
package monotime
