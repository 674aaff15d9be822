// Package steady tells the time by a clock that nobody sets.
//
// Ages that are kept as numbers, such as Unix nanoseconds in an atomic, come out wrong when the
// machine's clock is set between the two readings: an engine that was to be left alone for a
// second is left alone for an hour, and an event stream that stands still seems to have brought
// something an hour from now. [Now] is the wall clock as it was when the process began, plus the
// time that has passed since. Numbers made of it differ by the time between them.
//
// What other machines or people read as a time of day (signatures, certificates, logs, recordings)
// is of time.Now.
package monotime
