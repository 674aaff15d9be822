//go:build page && !(linux && amd64)

package page

import (
	"testing"
	"time"
)

func moveClock(t *testing.T, _ int, _ time.Duration) {
	t.Fatal("the clock of a process can be moved on Linux with amd64 only")
}
