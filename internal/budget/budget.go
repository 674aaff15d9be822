package budget

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Use is a category of memory use.
type Use uint8

// Uses.
const (
	Bodies  Use = iota // request bodies until they are placed
	Work               // parsed bodies and rendered prompts of requests being placed
	Records            // decisions kept for explain, recordings, prompts on their way to idle engines
	Index              // engine cache contents
	Peers              // messages from and to other replicas
	Admin              // requests to the administration listeners
	Streams            // open streams of proxies and health checks
	NumUses
)

var useNames = [NumUses]string{"bodies", "work", "records", "index", "peers", "admin", "streams"}

// String returns the use's metric label.
func (u Use) String() string {
	if u < NumUses {
		return useNames[u]
	}
	return "other"
}

// shares are the uses' shares of the limit, in percent. The rest is for the program itself:
// vocabularies, connections, goroutines, and garbage that was not collected yet.
var shares = [NumUses]int64{Bodies: 20, Work: 13, Records: 2, Index: 28, Peers: 6, Admin: 2, Streams: 20}

// collectPercent is the percentage of the limit that becomes the garbage collector's memory limit.
// beyondHeap is the minimum left for memory outside of the heap (mapped files, kernel socket
// buffers, allocations during a collection). leastPercent is the minimum for the garbage collector
// if memory is scarce.
const (
	collectPercent = 90
	beyondHeap     = 144 << 20
	leastPercent   = 70
)

// Budget is the process's memory, divided among uses. A nil Budget has no limit.
type Budget struct {
	whole *Budget // of the process; nil: this is it
	limit atomic.Int64
	uses  [NumUses]account
	live  pressure
	turns turns
}

type account struct {
	limit   atomic.Int64
	used    atomic.Int64
	refused atomic.Uint64
}

// New divides limit bytes. It returns nil, which grants everything, if limit is not positive.
func New(limit int64) *Budget {
	if limit <= 0 {
		return nil
	}
	b := &Budget{turns: newTurns()}
	b.divide(limit)
	b.live.threshold = uint64(limit) / 100 * pressedPercent
	return b
}

// Part returns the budget of one of n pools of the process: an equal part of b, of which no other
// pool can take anything. UnderPressure of a part reports the pressure of the process. It returns nil
// for a nil Budget.
func (b *Budget) Part(n int) *Budget {
	if b == nil {
		return nil
	}
	p := &Budget{whole: b, turns: newTurns()}
	p.SetParts(n)
	return p
}

// SetParts makes b one of n parts of the process's budget. Memory that is in use stays. It does
// nothing for a nil Budget and for one that is not a part.
func (b *Budget) SetParts(n int) {
	if b != nil && b.whole != nil {
		b.divide(b.whole.Limit() / int64(max(n, 1)))
	}
}

// divide sets the limits of all uses.
func (b *Budget) divide(limit int64) {
	b.limit.Store(limit)
	for u := range b.uses {
		b.uses[u].limit.Store(limit / 100 * shares[u])
	}
}

// Limit returns the total in bytes, 0 for none.
func (b *Budget) Limit() int64 {
	if b == nil {
		return 0
	}
	return b.limit.Load()
}

// Share returns the limit of a use in bytes, 0 for none.
func (b *Budget) Share(u Use) int64 {
	if b == nil {
		return 0
	}
	return b.uses[u].limit.Load()
}

// Used returns the bytes taken by a use.
func (b *Budget) Used(u Use) int64 {
	if b == nil {
		return 0
	}
	return b.uses[u].used.Load()
}

// Take takes n bytes for a use. It returns false and takes nothing if that would exceed the use's
// share. Release returns the bytes.
func (b *Budget) Take(u Use, n int) bool {
	if b == nil || n <= 0 {
		return true
	}
	a := &b.uses[u]
	if a.used.Add(int64(n)) <= a.limit.Load() {
		return true
	}
	a.used.Add(-int64(n))
	a.refused.Add(1)
	return false
}

// Release returns n bytes that Take took.
func (b *Budget) Release(u Use, n int) {
	if b != nil && n > 0 {
		b.uses[u].used.Add(-int64(n))
	}
}

// Apply sets the garbage collector's memory limit. A lower limit from GOMEMLIMIT is kept.
func (b *Budget) Apply() {
	if b == nil {
		return
	}
	if limit := b.heap(); limit < debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(limit)
	}
}

// heap is the memory limit for the garbage collector.
func (b *Budget) heap() int64 {
	limit := b.Limit()
	return max(min(limit/100*collectPercent, limit-beyondHeap), limit/100*leastPercent)
}

var (
	limitDesc   = prometheus.NewDesc("grapevine_memory_budget_bytes", "Memory that a use may take.", []string{"use"}, nil)
	usedDesc    = prometheus.NewDesc("grapevine_memory_budget_used_bytes", "Memory that a use has taken.", []string{"use"}, nil)
	refusedDesc = prometheus.NewDesc("grapevine_memory_budget_refused_total", "Times that a use wanted more memory than there was.", []string{"use"}, nil)
)

// Describe implements prometheus.Collector.
func (b *Budget) Describe(ch chan<- *prometheus.Desc) {
	ch <- limitDesc
	ch <- usedDesc
	ch <- refusedDesc
}

// Collect implements prometheus.Collector.
func (b *Budget) Collect(ch chan<- prometheus.Metric) {
	if b == nil {
		return
	}
	for u := range b.uses {
		a, name := &b.uses[u], Use(u).String()
		ch <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(a.limit.Load()), name)
		ch <- prometheus.MustNewConstMetric(usedDesc, prometheus.GaugeValue, float64(a.used.Load()), name)
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(a.refused.Load()), name)
	}
	total := "process"
	if b.whole != nil {
		total = "pool"
	}
	ch <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(b.Limit()), total)
}
