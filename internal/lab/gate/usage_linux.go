package gate

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processCPU returns the CPU time that a process has used, with the kernel's full precision.
func processCPU(pid int) (time.Duration, error) {
	var t unix.Timespec
	// The clock id of another process: the complement of its id above three bits that select CPU time.
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		return 0, fmt.Errorf("gate: CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// threadCPU returns the CPU time that the calling thread has used.
func threadCPU() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// WakeUps returns the number of voluntary context switches of all threads of a process since its start.
func WakeUps(pid int) (sum int, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, path := range tasks {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(raw)) {
			if text, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				n, _ := strconv.Atoi(strings.TrimSpace(text))
				sum += n
			}
		}
	}
	return sum, err
}

// memory returns a field of /proc/PID/status in MB. The kernel prints it in kB.
func memory(pid int, field string) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if text, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("gate: /proc/%d/status has no field %s", pid, field)
}
