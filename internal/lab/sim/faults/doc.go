// Package faults defines the faults of simulated engines: their kinds, the share of requests
// that they affect, and connections that freeze.
package faults
