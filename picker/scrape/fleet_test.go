package scrape

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// serveEngines makes the test binary a fleet of that many engines instead,
// until its input ends.
const serveEngines = "SCRAPE_TEST_ENGINES"

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(serveEngines)); err == nil {
		serveFleet(n)
		return
	}
	os.Exit(m.Run())
}

// serveFleet serves pages of 100 KB at n addresses and prints these.
func serveFleet(n int) {
	var page bytes.Buffer
	noise(&page, 17)
	vllm, err := os.ReadFile("testdata/vllm.prom")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	page.Write(vllm)
	noise(&page, 17)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(page.Len()))
		w.Write(page.Bytes())
	})
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		go http.Serve(ln, handler)
		fmt.Println(ln.Addr())
	}
	fmt.Println(page.Len())
	bufio.NewReader(os.Stdin).ReadByte()
}

// BenchmarkFleet polls fleets for some seconds: CPU and memory of this
// process, the engines run in another.
func BenchmarkFleet(b *testing.B) {
	always := func(*endpoint.Endpoint) bool { return true }
	never := func(*endpoint.Endpoint) bool { return false }
	for _, c := range []struct {
		name      string
		endpoints int
		demand    func(*endpoint.Endpoint) bool
	}{{"100/slow", 100, never}, {"100/fast", 100, always}, {"1000/slow", 1000, never}} {
		b.Run(c.name, func(b *testing.B) {
			addrs, size := startFleet(b, c.endpoints)
			debug.FreeOSMemory()
			before := resident(b)
			p, err := Open(Options{Demand: c.demand})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			pool := endpoint.NewPool(endpoint.PoolOptions{})
			pool.Subscribe(p.Apply)
			pool.Set(addrs)
			time.Sleep(1500 * time.Millisecond)
			cpu, start := cpuTime(b), time.Now()
			for b.Loop() {
				time.Sleep(2 * time.Second)
			}
			b.ReportMetric((cpuTime(b)-cpu).Seconds()/time.Since(start).Seconds(), "cores")
			b.ReportMetric(float64(resident(b)-before)/1e6, "rss_MB")
			b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
			b.ReportMetric(float64(size)/1e3, "page_kB")
			for _, s := range p.Status() {
				if s.State != StateOK {
					b.Fatalf("%+v", s)
				}
			}
		})
	}
}

func startFleet(b *testing.B, n int) (specs []endpoint.Spec, size int) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", serveEngines, n))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for len(specs) < n && lines.Scan() {
		specs = append(specs, endpoint.Spec{Addr: netip.MustParseAddrPort(lines.Text())})
	}
	if !lines.Scan() {
		b.Fatal("the fleet did not start")
	}
	size, _ = strconv.Atoi(lines.Text())
	return specs, size
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func resident(b *testing.B) int {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		b.Fatal(err)
	}
	return pages * os.Getpagesize()
}
