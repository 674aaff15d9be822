package testkit

import (
	"testing"
	"time"
)

// HangTimeout is when what a test waits for counts as hung. It is no limit of what is
// tested: a slow machine with other work stays far below it.
const HangTimeout = 3 * time.Minute

// Await polls until ok holds; the test fails where it does not come to that.
func Await(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	if !PollUntil(ok) {
		tb.Fatalf("not within %v: %s", HangTimeout, what)
	}
}

// Eventually polls until nothing is amiss, and says how long that took; the test
// fails with what was amiss last.
func Eventually(tb testing.TB, amiss func() string) time.Duration {
	tb.Helper()
	begun, why := time.Now(), ""
	if !PollUntil(func() bool { why = amiss(); return why == "" }) {
		tb.Fatalf("not within %v: %s", HangTimeout, why)
	}
	return time.Since(begun)
}

// PollUntil polls until ok holds and says whether it does in the end, the more rarely the
// longer it takes.
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
