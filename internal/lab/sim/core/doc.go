// Package core drives a simulated engine (package engine) in real time. It executes steps, waits
// for each step's duration in the model's time, reports progress to jobs, and publishes cache
// events. It keeps blocks for other engines until their leases expire. It does not depend on the
// wire format of requests and responses.
package core
