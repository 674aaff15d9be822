package testkit

import (
	"testing"
	"time"
)

// HangTimeout is the time after which a condition counts as hung. It is no performance limit: a
// slow, busy machine stays far below it.
const HangTimeout = 3 * time.Minute

// Await polls until ok returns true, and fails the test after [HangTimeout].
func Await(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	if !PollUntil(ok) {
		tb.Fatalf("not within %v: %s", HangTimeout, what)
	}
}

// Eventually polls until amiss returns "" and returns the time that took. After [HangTimeout] it
// fails the test with the last result of amiss.
func Eventually(tb testing.TB, amiss func() string) time.Duration {
	tb.Helper()
	begun, why := time.Now(), ""
	if !PollUntil(func() bool { why = amiss(); return why == "" }) {
		tb.Fatalf("not within %v: %s", HangTimeout, why)
	}
	return time.Since(begun)
}

// PollUntil polls until ok returns true, at increasing intervals. It returns false after
// [HangTimeout].
func PollUntil(ok func() bool) bool {
	for begun := time.Now(); !ok(); {
		waited := time.Since(begun)
		if waited > HangTimeout {
			return false
		}
		time.Sleep(min(max(waited/20, time.Millisecond), 50*time.Millisecond))
	}
	return true
}
