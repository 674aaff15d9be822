// Package core drives a simulated engine (package engine) in real time: it steps it, waits
// until the step is over in the model's time, tells jobs how far they are, and publishes
// what was cached. It keeps blocks for other engines for as long as their leases last. It
// knows nothing of requests and answers as they are on the wire.
package core
