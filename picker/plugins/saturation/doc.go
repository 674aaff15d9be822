// Package saturation says when a pool is full: the detectors that weigh the
// candidates of a request, and the rows that name the policies by which requests
// wait.
//
// A detector returns 1 or more when the candidates are saturated. The same
// limits, with a headroom, serve as a filter. Detectors allocate nothing and are
// safe for concurrent use.
package saturation
