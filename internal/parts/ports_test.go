//go:build linux

package parts

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
)

// TestListenersComeAndGo: a reserved port refuses connections, takes listeners
// one after the other, and refuses again, with connections of the one before
// still about.
func TestListenersComeAndGo(t *testing.T) {
	at := FreeAddress(t)
	refused := func() {
		t.Helper()
		if c, err := net.Dial("tcp", at); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v, %v, want a refusal", c, err)
		}
	}
	for range 3 {
		refused()
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := net.Listen("tcp", at); err == nil {
			t.Error("two listen at the same time")
		}
		out, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = in.Close(), l.Close()
		defer out.Close()
	}
	refused()
}

// TestReservedPortsAreUnique checks that a reserved port is not reserved twice and not assigned as an arbitrary
// port.
func TestReservedPortsAreUnique(t *testing.T) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := map[int]bool{}
	for range 8 {
		wg.Go(func() {
			list, release, err := ReservePorts(100)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(release)
			mu.Lock()
			defer mu.Unlock()
			for _, p := range list {
				if seen[p] {
					t.Errorf("port %d twice", p)
				}
				seen[p] = true
			}
		})
	}
	wg.Wait()
	if len(seen) != 800 {
		t.Errorf("%d ports", len(seen))
	}
	for port := range seen {
		if _, err := hold(port); err == nil {
			t.Fatalf("port %d is held twice", port)
		}
	}
}

// TestRelease checks that a released port can be bound.
func TestRelease(t *testing.T) {
	list, release, err := ReservePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	release()
	letGo, err := hold(list[0])
	if err != nil {
		t.Fatal(err)
	}
	letGo()
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", list[0])); err == nil {
		_ = c.Close()
		t.Error("somebody listens")
	}
}
