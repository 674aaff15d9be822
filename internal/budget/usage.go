package budget

import (
	"os"
	"path"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// Needed returns the memory in bytes that the process cannot give back: its anonymous memory
// without the garbage and free pages of the heap, which the next collection returns. It returns 0
// where the kernel does not state it.
func Needed() int64 {
	resident := anonymous("/")
	if resident == 0 {
		return 0
	}
	samples := []metrics.Sample{{Name: liveMetric}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(samples)
	size := func(i int) int64 {
		if samples[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return int64(samples[i].Value.Uint64())
	}
	live, objects := size(0), size(1)
	return max(resident-max(objects-live, 0)-size(2)-size(3), live)
}

// anonymous returns the resident memory that no file backs, or 0 if unknown. The kernel cannot
// reclaim it, so it counts towards the limit of the cgroup.
func anonymous(root string) (n int64) {
	b, _ := os.ReadFile(path.Join(root, "proc/self/status"))
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && (f[0] == "RssAnon:" || f[0] == "RssShmem:") {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			n += kib << 10
		}
	}
	return n
}

// Ceiling returns the memory limit of the process in bytes: of its budget, or a lower GOMEMLIMIT. It
// returns 0 for none.
func (b *Budget) Ceiling() int64 {
	if b == nil {
		return 0
	}
	if b.whole != nil {
		b = b.whole
	}
	if goal := debug.SetMemoryLimit(-1); goal < b.heap() {
		return goal
	}
	return b.Limit()
}
