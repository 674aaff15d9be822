// Package watchdog finds loops of this process that have stopped.
//
// A loop reports when it works and when it waits for something to do. A loop that has worked
// on one thing for longer than the limit is stalled: it waits for a mutex, a full pipe or a
// disk. Long work reports progress, so that a slow loop does not count as stuck, for example one over
// 10,000 endpoints in a process with little processor time. Probes find a mutex that is never released, also if
// no loop waits for it.
//
// Time is counted in ticks of the watchdog's own goroutine. A process that was stopped or got
// no processor time misses ticks itself, so that it is not reported; the wall clock plays no
// part.
package watchdog
