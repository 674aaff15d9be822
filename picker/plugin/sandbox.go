package plugin

import "time"

// Sandbox reports on code in another language that a plugin runs. It is safe for concurrent use.
type Sandbox interface {
	Report() SandboxReport
	// Continue adds the counts of the sandbox that this one replaces. It is called before the first
	// call of the plugin.
	Continue(old Sandbox)
}

// SandboxReport is the state of a Sandbox.
type SandboxReport struct {
	Calls    uint64             // that ran
	Failures map[string]uint64  // by reason, all reasons
	Seconds  float64            // of all calls
	Buckets  map[float64]uint64 // calls of at most that many seconds

	LastFailure string // "" for none
	FailedAt    time.Time
	PausedUntil time.Time // zero if calls do not pause
}
