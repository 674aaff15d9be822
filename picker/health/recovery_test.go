package health

import (
	"slices"
	"testing"
	"time"
)

// TestAgain: retries are at most a tenth of the requests, but always at least three.
func TestAgain(t *testing.T) {
	var a RetryLimit
	now, tries := time.Unix(1000, 0), []int{}
	for range 3 {
		n := 0
		for range 1000 {
			now = now.Add(10 * time.Millisecond)
			if a.Add(now, 1, 0) { // each request would be tried twice
				a.Add(now, 0, 1)
				n++
			}
		}
		tries = append(tries, n)
	}
	if slices.Max(tries) > 103 || slices.Min(tries) < 95 {
		t.Errorf("of a thousand requests each, %v are tried twice", tries)
	}
}
