package events

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestIdlePublishers follows two thousand idle publishers (connections to libzmq in another
// process) and bounds the cost of each.
func TestIdlePublishers(t *testing.T) {
	const n = 2000
	endpoints := idlePublisher(t)
	before := usage()
	r := openReader(t, Options{Hasher: testHasher()})
	var list []EndpointSource
	for i := range n {
		list = append(list, EndpointSource{
			ID: block.EndpointID(i), Name: fmt.Sprintf("10.0.%d.%d:8000", i/256, i%256), Model: testModel,
			Streams: []Stream{{Events: endpoints[i%len(endpoints)]}},
		})
	}
	start := time.Now()
	r.Set(list)
	testkit.Await(t, "all connections", func() bool {
		for i := range n {
			if !r.of(block.EndpointID(i))[0].view.up.Load() {
				return false
			}
		}
		return true
	})
	took := time.Since(start)
	after := usage()
	each := func(a, b uint64) float64 { return float64(a-min(a, b)) / n / 1024 }
	t.Logf("%d idle publishers: connected in %v; each: %.1f KiB RSS, %.1f KiB heap and stacks, %.2f goroutines",
		n, took, each(after.rss, before.rss), each(after.memory, before.memory), float64(after.goroutines-before.goroutines)/n)
	if kib := each(after.memory, before.memory); kib > 20 {
		t.Errorf("%.1f KiB of heap and stacks for each idle publisher", kib)
	}
	if extra := after.goroutines - before.goroutines - n; extra > 10 {
		t.Errorf("%d goroutines more than one for each publisher", extra)
	}
}

type used struct {
	rss, memory uint64
	goroutines  int
}

func usage() used {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := used{memory: m.HeapInuse + m.StackInuse, goroutines: runtime.NumGoroutine()}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		pages, _ := strconv.ParseUint(strings.Fields(string(text))[1], 10, 64)
		u.rss = pages * uint64(os.Getpagesize())
	}
	return u
}

// idlePublisher runs PUB sockets that publish nothing and returns their
// endpoints.
func idlePublisher(tb testing.TB) []string {
	tb.Helper()
	const script = `
import resource, sys, zmq
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
ctx = zmq.Context()
socks = [ctx.socket(zmq.PUB) for _ in range(10)]
for s in socks:
    s.bind("tcp://127.0.0.1:*")
    print(s.getsockopt(zmq.LAST_ENDPOINT).decode(), flush=True)
sys.stdin.read()
`
	p := parts.Start(tb, "-c", script)
	endpoints := make([]string, 10)
	for i := range endpoints {
		endpoints[i] = p.Line()
	}
	return endpoints
}
