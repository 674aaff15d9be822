// Package monotime reads the monotonic clock, which no clock adjustment changes.
//
// Times stored as numbers, such as Unix nanoseconds in an atomic, give wrong ages if the machine's
// clock is set between two readings. For example, an engine that should be avoided for a second is
// avoided for an hour. [Now] is the wall clock at process start plus the time that has passed since
// then, so differences of its values are durations.
//
// Times that other machines or people read (signatures, certificates, logs, recordings) use
// [time.Now].
package monotime
