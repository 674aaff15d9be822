package budget

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
)

func TestTakeAndGive(t *testing.T) {
	b := New(100 << 20)
	share := int(b.Share(Bodies))
	if share != 20<<20 {
		t.Errorf("share of %d bytes", share)
	}
	if !b.Take(Bodies, share) || b.Take(Bodies, 1) || !b.Take(Work, 1) {
		t.Error("a use took from another, or more than its share")
	}
	b.Release(Bodies, share)
	if b.Used(Bodies) != 0 || !b.Take(Bodies, 1) {
		t.Error("released bytes cannot be taken")
	}
	if n := testutil.CollectAndCount(b); n != 3*int(NumUses)+1 {
		t.Errorf("%d metrics", n)
	}
	var none *Budget
	if !none.Take(Bodies, 1<<40) || none.UnderPressure() || none.Limit() != 0 || New(0) != nil {
		t.Error("nil budget refused a request")
	}
	none.Release(Bodies, 1)
	none.Apply()
	prometheus.NewRegistry().MustRegister(b)
}

// TestNoBudget: a nil budget has no limits, no parts and no metrics, and does not change the garbage collector.
func TestNoBudget(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	var none *Budget
	none.SetParts(2)
	none.Apply()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("memory limit = %d after Apply() of a nil budget, want %d", got, before)
	}
	if part := none.Part(2); part != nil || none.Share(Bodies) != 0 || none.Used(Bodies) != 0 {
		t.Errorf("Part() = %v, Share() = %d, Used() = %d, want no limits", part, none.Share(Bodies), none.Used(Bodies))
	}
	if n := testutil.CollectAndCount(none); n != 0 {
		t.Errorf("%d metrics of a nil budget, want none", n)
	}
}

// TestParts: each pool has an equal part of the process's memory, which other pools cannot take. The
// process's own budget is not divided.
func TestParts(t *testing.T) {
	whole := New(100 << 20)
	a, b := whole.Part(2), whole.Part(2)
	share := int(a.Share(Bodies))
	if a.Limit() != 50<<20 || !a.Take(Bodies, share) || a.Take(Bodies, 1) || !b.Take(Bodies, share) {
		t.Errorf("Limit() = %d, want 50 MiB, or a part took memory of another one", a.Limit())
	}
	a.SetParts(4)
	if a.Limit() != 25<<20 || a.Used(Bodies) != int64(share) {
		t.Errorf("Limit() = %d, Used() = %d after SetParts(4), want 25 MiB and %d", a.Limit(), a.Used(Bodies), share)
	}
	whole.SetParts(4)
	if whole.Limit() != 100<<20 {
		t.Errorf("Limit() of the process = %d after SetParts(), want 100 MiB", whole.Limit())
	}
	for label, b := range map[string]*Budget{"process": whole, "pool": a} {
		text, err := testutil.CollectAndFormat(b, expfmt.TypeTextPlain, "grapevine_memory_budget_bytes")
		if err != nil || !strings.Contains(string(text), `{use="`+label+`"}`) {
			t.Errorf("metrics lack the limit of the %s: %s, %v", label, text, err)
		}
	}
}

// TestBeyondTheHeap: the garbage collector's limit leaves room for memory that it does not count,
// above all if the limit is small.
func TestBeyondTheHeap(t *testing.T) {
	const mib = 1 << 20
	for limit, want := range map[int64]int64{128 * mib: 89, 512 * mib: 368, 1024 * mib: 880, 2000 * mib: 1800, 8000 * mib: 7200} {
		if got := New(limit).heap() / mib; got < want-1 || got > want {
			t.Errorf("%d MiB: heap limit %d, want %d", limit/mib, got, want)
		}
	}
}

// TestTakeTogether: with many goroutines, the share is never exceeded and nothing is lost.
func TestTakeTogether(t *testing.T) {
	b := New(1 << 20)
	share := b.Share(Records)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10_000 {
				if b.Take(Records, 4<<10) {
					if used := b.Used(Records); used > share+8*4<<10 {
						t.Errorf("%d bytes taken of %d", used, share)
					}
					b.Release(Records, 4<<10)
				}
			}
		})
	}
	wg.Wait()
	if b.Used(Records) != 0 {
		t.Errorf("%d bytes left over", b.Used(Records))
	}
}

func TestPressure(t *testing.T) {
	if New(1 << 40).UnderPressure() {
		t.Error("UnderPressure() with a small heap and a large limit")
	}
	runtime.GC() // live memory is known after the first collection
	if b := New(1 << 10); !b.UnderPressure() {
		t.Error("UnderPressure() = false with a limit of 1 KiB")
	}
	if New(1 << 40).Part(2).UnderPressure() {
		t.Error("UnderPressure() of a part, want that of the process")
	}
	if b := New(1 << 10).Part(2); !b.UnderPressure() {
		t.Error("UnderPressure() of a part = false with a limit of 1 KiB for the process")
	}
	recent := New(1 << 10)
	recent.live.next.Store(math.MaxInt64)
	if recent.UnderPressure() {
		t.Error("UnderPressure() reads the runtime's metrics before the interval has passed")
	}
}

func TestMemory(t *testing.T) {
	for _, c := range []struct {
		name   string
		files  map[string]string
		want   int64
		source string
	}{
		{"v2", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "1048576\n", "proc/meminfo": "MemTotal: 2048 kB\n"}, 1 << 20, "cgroup"},
		{"v1", map[string]string{"proc/self/cgroup": "5:cpu,memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "4096", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 4096, "cgroup"},
		{"namespace", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "512\n"}, 512, "cgroup"},
		{"no limit", map[string]string{"proc/self/cgroup": "0::/\n", "proc/meminfo": "MemFree: 1 kB\nMemTotal: 2 kB\n"}, 2048, "machine"},
		{"unknown", nil, 0, "machine"},
		{"v1 without a limit", map[string]string{"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 0, "machine"},
		{"other controllers", map[string]string{"proc/self/cgroup": "no group\n3:cpu:/x\n4:memory:/y\n", "sys/fs/cgroup/memory.max": "1\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "2", "sys/fs/cgroup/memory/y/memory.limit_in_bytes": "4096"}, 4096, "cgroup"},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			file := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if n, source := memory(root); n != c.want || source != c.source {
			t.Errorf("%s: %d by %s, want %d by %s", c.name, n, source, c.want, c.source)
		}
	}
	if Files() < 8 {
		t.Error("no file descriptors for connections")
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{"512MiB": 512 << 20, "1.5GiB": 3 << 29, "2G": 2e9, "100": 100, "64Mi": 64 << 20, "7 KiB": 7 << 10, "0": 0} {
		if n, err := ParseSize(in); n != want || err != nil {
			t.Errorf("%s: %d, %v; want %d", in, n, err, want)
		}
	}
	for _, in := range []string{"", "MiB", "-1", "1e30", "x", "NaN"} {
		if n, err := ParseSize(in); err == nil {
			t.Errorf("%s: %d", in, n)
		}
	}
}

// limited opens a listener with limits. The channel receives accepted connections.
func limited(t *testing.T, o ListenOptions) (l net.Listener, accepted chan net.Conn, dial func() net.Conn) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, accepted = Limit(inner, o), make(chan net.Conn, 8)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	t.Cleanup(func() { l.Close() })
	return l, accepted, func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// TestLimit opens more connections than a listener accepts.
func TestLimit(t *testing.T) {
	refused := make(chan struct{}, 8)
	l, accepted, dial := limited(t, ListenOptions{Connections: 1, Refused: func() { refused <- struct{}{} }})
	dial()
	served := <-accepted
	if _, err := dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a second connection: %v", err)
	}
	<-refused
	served.Close()
	served.Close() // counts once
	dial()
	<-accepted
	l.Close()
	if _, open := <-accepted; open {
		t.Error("accepts after Close")
	}
}

// TestSilent: silent connections are closed, others are not.
func TestSilent(t *testing.T) {
	silent := make(chan struct{}, 8)
	_, accepted, dial := limited(t, ListenOptions{FirstByte: time.Millisecond, Silent: func() { silent <- struct{}{} }})
	quiet := dial()
	<-accepted
	<-silent
	if _, err := quiet.Read(make([]byte, 1)); err == nil {
		t.Error("a silent connection stays open")
	}
	_, accepted, dial = limited(t, ListenOptions{FirstByte: time.Hour, Silent: func() { silent <- struct{}{} }})
	spoke := dial()
	if _, err := spoke.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	served := <-accepted
	if _, err := served.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if served.(*conn).silent.Stop() {
		t.Error("connection with data is still subject to the timeout")
	}
}

// TestConnectionsTakeMemory: memory limits connections if it is scarcer than files.
func TestConnectionsTakeMemory(t *testing.T) {
	if n := NewListeners(New(10*connMemory*connParts), nil).most; n != min(10, Files()) {
		t.Errorf("%d connections in the memory of 10", n)
	}
	if n := NewListeners(nil, nil).most; n != Files() {
		t.Errorf("%d connections without a limit of memory", n)
	}
}

// TestShortConnections: on listeners for short connections, new connections displace old ones.
func TestShortConnections(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	l := Limit(inner, ListenOptions{Connections: 2, Short: true, Refused: func() { refused++ }})
	defer l.Close()
	var held, served []net.Conn
	for range 5 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		held, served = append(held, c), append(served, s)
	}
	for i, c := range held {
		if i >= 3 {
			_, _ = served[i].Write([]byte("a"))
		}
		n, err := c.Read(make([]byte, 1))
		if open := n == 1 && err == nil; open != (i >= 3) {
			t.Errorf("connection %d of 5: %d bytes, %v", i, n, err)
		}
	}
	for _, s := range served { // connections closed already do not count twice
		s.Close()
	}
	if in := l.(*listener); in.open != 0 || refused != 3 || len(in.from) != 0 {
		t.Errorf("%d open, %d closed for others", in.open, refused)
	}
}
