package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc, the same on every Linux.
const tick = 10 * time.Millisecond

// errStat is returned for a malformed /proc file.
var errStat = errors.New("bench: cannot read processor time or memory of a process")

// Usage holds the resources of a process.
type Usage struct {
	CPU time.Duration // since its start: all threads, user and system
	RSS int64         // resident memory in bytes
}

// ReadUsage reads the usage of a running process from /proc, in steps of 10 ms
// and 1 KiB. It works on Linux.
func ReadUsage(pid int) (Usage, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return Usage{}, fmt.Errorf("%w: %w", errStat, err)
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return Usage{}, fmt.Errorf("%w: %w", errStat, err)
	}
	return parseUsage(stat, status)
}

func parseUsage(stat, status []byte) (Usage, error) {
	// The name in parentheses may contain anything, so fields are counted after it: state is field
	// 0, utime 11 and stime 12.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return Usage{}, fmt.Errorf("%w: stat has %d fields", errStat, len(fields))
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return Usage{}, fmt.Errorf("%w: %w", errStat, err)
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return Usage{}, fmt.Errorf("%w: %w", errStat, err)
	}
	rss, err := residentBytes(string(status))
	return Usage{CPU: time.Duration(user+system) * tick, RSS: rss}, err
}

func residentBytes(status string) (int64, error) {
	for line := range strings.Lines(status) {
		value, ok := strings.CutPrefix(line, "VmRSS:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errStat, err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("%w: status has no VmRSS (has the process ended?)", errStat)
}

// Idle holds the resources of a process without requests.
type Idle struct {
	Period    time.Duration
	Cores     float64 // mean CPU time per second
	RSS       int64   // resident memory in bytes at the end
	Endpoints int     // names the rows, as in Options
}

// MeasureIdle observes the process for the period. It returns an error if the process ends, or ctx
// does.
func MeasureIdle(ctx context.Context, pid int, period time.Duration, endpoints int) (Idle, error) {
	before, err := ReadUsage(pid)
	if err != nil {
		return Idle{}, err
	}
	start := time.Now()
	select {
	case <-ctx.Done():
		return Idle{}, ctx.Err()
	case <-time.After(period):
	}
	after, err := ReadUsage(pid)
	if err != nil {
		return Idle{}, err
	}
	elapsed := time.Since(start)
	cores := (after.CPU - before.CPU).Seconds() / elapsed.Seconds()
	return Idle{Period: elapsed, Cores: cores, RSS: after.RSS, Endpoints: endpoints}, nil
}
