//go:build hostile

package hostile

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ownTimes separates the program's own time from the latency of honest requests. It has the time
// from a complete request to its decision (by the program's metric), the program's CPU time, and
// the time that its threads waited for a CPU. Ended threads, such as the ones for large bodies, are
// not included.
type ownTimes struct {
	buckets        map[float64]float64
	threads        map[string]time.Duration // time waited for a CPU, by thread
	chosen         float64                  // p90 of the decision in seconds, rounded up to a bucket
	worked, waited time.Duration
}

const chooseBucket = `grapevine_extproc_choose_duration_seconds_bucket{le="`

// inside reads the totals since the start of the program.
func (c *cage) inside() (o ownTimes) {
	o.buckets = map[float64]float64{}
	for name, n := range c.counters() {
		if le, ok := strings.CutPrefix(name, chooseBucket); ok {
			bound, err := strconv.ParseFloat(strings.TrimSuffix(le, `"}`), 64)
			if err == nil {
				o.buckets[bound] = n
			}
		}
	}
	if c.cmd.Process == nil {
		return o
	}
	o.threads = map[string]time.Duration{}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", c.cmd.Process.Pid))
	for _, path := range tasks {
		var worked, waited int64
		if b, err := os.ReadFile(path); err == nil {
			if _, err := fmt.Sscan(string(b), &worked, &waited); err == nil {
				o.threads[path] = time.Duration(waited)
			}
		}
	}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:])); len(f) > 12 { // fields after the name; the state is the third field
		for _, ticks := range f[11:13] { // user and system time in hundredths of a second
			n, _ := strconv.ParseInt(ticks, 10, 64)
			o.worked += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return o
}

// since returns the difference to an earlier reading.
func (o ownTimes) since(before ownTimes) ownTimes {
	out := ownTimes{worked: o.worked - before.worked, chosen: math.Inf(1)}
	for thread, waited := range o.threads {
		out.waited += waited - before.threads[thread]
	}
	all := o.buckets[math.Inf(1)] - before.buckets[math.Inf(1)]
	for bound, n := range o.buckets {
		if n-before.buckets[bound] >= .9*all {
			out.chosen = min(out.chosen, bound)
		}
	}
	return out
}
