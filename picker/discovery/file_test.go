package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// lists receives a source's published lists.
type lists chan []string

func (l lists) change(f Found) {
	var out []string
	for _, s := range f.Specs {
		out = append(out, s.Addr.String())
	}
	l <- out
}

func (l lists) want(t *testing.T, want ...string) {
	t.Helper()
	select {
	case got := <-l:
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("endpoints (-want +got):\n%s", diff)
		}
	case <-time.After(testkit.HangTimeout):
		t.Fatalf("no change was published, want %v", want)
	}
}

func (l lists) none(t *testing.T) {
	t.Helper()
	select {
	case got := <-l:
		t.Fatalf("published %v, want nothing", got)
	default:
	}
}

func fileOf(addrs ...string) string {
	out := "endpoints:\n"
	for _, a := range addrs {
		out += fmt.Sprintf("- {address: %q, port: 8000}\n", a)
	}
	return out
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, o FileOptions) (*File, lists) {
	t.Helper()
	told := make(lists, 100)
	o.Sink.Update = told.change
	if o.Settle == 0 {
		o.Settle = 10 * time.Millisecond
	}
	s, err := OpenFile(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, told
}

// TestWatch changes a real file like editors, shells and mounts do. Polling is effectively
// disabled.
func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	write(t, path, fileOf("10.0.0.1"))
	reg := prometheus.NewRegistry()
	s, told := open(t, FileOptions{Path: path, Poll: time.Hour, Sink: Sink{Registerer: reg}})
	told.want(t, "10.0.0.1:8000")

	write(t, path, fileOf("10.0.0.1", "10.0.0.2"))
	told.want(t, "10.0.0.1:8000", "10.0.0.2:8000")

	write(t, path+".tmp", fileOf("10.0.0.3"))
	rename(t, path+".tmp", path)
	told.want(t, "10.0.0.3:8000")

	write(t, path, "endpoints: [")
	testkit.Await(t, "broken file noticed", func() bool { return len(s.Status().Problems) > 0 })
	rename(t, path, path+".away")
	testkit.Await(t, "absence noticed", func() bool {
		p := s.Status().Problems
		return len(p) == 1 && p[0].Message == "no such file or directory"
	})
	told.none(t)
	if n := s.Status().Endpoints; n != 1 {
		t.Errorf("%d endpoints while the file is missing, want the previous one", n)
	}
	if got := testutil.ToFloat64(s.metrics.ok); got != 0 {
		t.Errorf("grapevine_discovery_file_ok = %v while the file is missing", got)
	}

	write(t, path, fileOf("10.0.0.3"))
	testkit.Await(t, "return noticed", func() bool { return s.Status().OK() })
	told.none(t)
	if got := testutil.ToFloat64(s.metrics.ok); got != 1 {
		t.Errorf("grapevine_discovery_file_ok = %v after the file's return", got)
	}
}

// TestWatchLink swaps the link that a ConfigMap mount swaps, and the target of a link to another
// folder.
func TestWatchLink(t *testing.T) {
	dir := t.TempDir()
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, name+".tmp"); err != nil {
			t.Fatal(err)
		}
		rename(t, name+".tmp", name)
	}
	for i := 1; i <= 3; i++ {
		version := filepath.Join(dir, fmt.Sprintf("..v%d", i))
		if err := os.Mkdir(version, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(version, "endpoints.yaml"), fileOf(fmt.Sprintf("10.0.0.%d", i)))
	}
	link("..v1", filepath.Join(dir, "..data"))
	path := filepath.Join(dir, "endpoints.yaml")
	link(filepath.Join("..data", "endpoints.yaml"), path)

	_, told := open(t, FileOptions{Path: path, Poll: time.Hour})
	told.want(t, "10.0.0.1:8000")
	link("..v2", filepath.Join(dir, "..data"))
	told.want(t, "10.0.0.2:8000")
	write(t, filepath.Join(dir, "..v2", "endpoints.yaml"), fileOf("10.0.0.9"))
	told.want(t, "10.0.0.9:8000")
	link("..v3", filepath.Join(dir, "..data"))
	told.want(t, "10.0.0.3:8000")
}

func TestPollAndReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	write(t, path, fileOf("10.0.0.1"))
	_, polled := open(t, FileOptions{Path: path, Poll: 5 * time.Millisecond, NoWatch: true})
	s, reloaded := open(t, FileOptions{Path: path, Poll: time.Hour, NoWatch: true})
	polled.want(t, "10.0.0.1:8000")
	reloaded.want(t, "10.0.0.1:8000")
	write(t, path+".tmp", fileOf("10.0.0.2"))
	rename(t, path+".tmp", path)
	polled.want(t, "10.0.0.2:8000")
	reloaded.none(t)
	s.Reload()
	reloaded.want(t, "10.0.0.2:8000")
}

func TestOpenRefuses(t *testing.T) {
	told := make(lists, 1)
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	_, err := OpenFile(FileOptions{Path: path, Sink: Sink{Update: told.change}})
	var problems strict.Problems
	if !errors.As(err, &problems) || len(problems) != 1 || problems[0].File != path {
		t.Errorf("absent file: %v", err)
	}
	write(t, path, "endpoints:\n- {address: 10.0.0.1, prot: 1}\n")
	if _, err = OpenFile(FileOptions{Path: path, Sink: Sink{Update: told.change}}); !errors.As(err, &problems) || len(problems) != 2 {
		t.Errorf("bad file: %v", err)
	}
	if _, err = OpenFile(FileOptions{Sink: Sink{Update: told.change}}); !errors.Is(err, errNoPath) {
		t.Errorf("no path: %v", err)
	}
	if _, err = OpenFile(FileOptions{Path: path}); !errors.Is(err, errNoSink) {
		t.Errorf("no callback: %v", err)
	}
	told.none(t)
}

// hosts is a resolver that tests modify.
type hosts struct {
	mu    sync.Mutex
	addrs map[string][]netip.Addr
	asked int
}

func (h *hosts) set(name string, addrs ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.addrs == nil {
		h.addrs = map[string][]netip.Addr{}
	}
	h.addrs[name] = nil
	for _, a := range addrs {
		h.addrs[name] = append(h.addrs[name], netip.MustParseAddr(a))
	}
}

func (h *hosts) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	if host == "slow" {
		h.mu.Unlock()
		<-ctx.Done()
		h.mu.Lock()
		return nil, ctx.Err()
	}
	if len(h.addrs[host]) == 0 {
		return nil, errors.New("no such host")
	}
	return slices.Clone(h.addrs[host]), nil
}

// TestNames follows the addresses of names through a series of changes.
func TestNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	write(t, path, fileOf("fleet", "10.0.0.1", "late"))
	synctest.Test(t, func(t *testing.T) {
		var h hosts
		h.set("fleet", "10.0.1.2", "::ffff:10.0.1.1", "10.0.1.2", "fd00::1")
		s, told := open(t, FileOptions{Path: path, NoWatch: true, Poll: time.Hour, Resolver: &h})
		told.want(t, "10.0.1.1:8000", "10.0.1.2:8000", "[fd00::1]:8000", "10.0.0.1:8000")
		if diff := cmp.Diff(map[string]string{"late": "no such host"}, s.Status().Unresolved); diff != "" {
			t.Errorf("unresolved (-want +got):\n%s", diff)
		}

		h.set("fleet", "10.0.1.3")
		h.set("late", "10.0.0.1", "10.0.2.1")
		time.Sleep(defaultResolveEvery - time.Second)
		told.none(t)
		time.Sleep(2 * time.Second)
		told.want(t, "10.0.1.3:8000", "10.0.0.1:8000", "10.0.2.1:8000")
		if st := s.Status(); st.Doubled != 1 || !st.OK() {
			t.Errorf("status after the names resolve: %+v", st)
		}

		h.set("fleet")
		time.Sleep(defaultResolveEvery)
		synctest.Wait()
		told.none(t)
		if st := s.Status(); st.Endpoints != 3 || len(st.Unresolved) != 1 {
			t.Errorf("status after a failed look-up: %+v", st)
		}
		s.Close()
	})
}

func TestSlowResolverIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	write(t, path, fileOf("slow", "10.0.0.1"))
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s, told := open(t, FileOptions{Path: path, NoWatch: true, Resolver: &hosts{}})
		told.want(t, "10.0.0.1:8000")
		if d := time.Since(start); d != defaultResolveTimeout {
			t.Errorf("opened after %v, want %v", d, defaultResolveTimeout)
		}
		time.Sleep(defaultResolveEvery + time.Second) // during a lookup
		start = time.Now()
		s.Close()
		if d := time.Since(start); d != 0 {
			t.Errorf("close waited %v for a resolver", d)
		}
	})
}

func TestManyNames(t *testing.T) {
	var h hosts
	var names []string
	for i := range 100 {
		name := fmt.Sprintf("engine-%d.internal", i)
		h.set(name, fmt.Sprintf("10.0.3.%d", i))
		names = append(names, name)
	}
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	write(t, path, fileOf(names...))
	s, told := open(t, FileOptions{Path: path, Resolver: &h})
	if got := <-told; len(got) != 100 || !strings.HasPrefix(got[99], "10.0.3.99:") {
		t.Errorf("published %d endpoints: %v", len(got), got)
	}
	if h.asked != 100 || !s.Status().OK() {
		t.Errorf("%d lookups, status %+v", h.asked, s.Status())
	}
}
