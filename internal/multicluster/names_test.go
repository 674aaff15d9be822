package multicluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestResolver: lookups run in the background. One without an answer does not delay others, and the
// last addresses of a removed name stay.
func TestResolver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := netip.MustParseAddrPort("192.0.2.1:80"), netip.MustParseAddrPort("192.0.2.2:80")
		answers := map[string][]netip.AddrPort{"b:80": {one}}
		r, asked := newResolver(), 0
		var mu sync.Mutex
		answer := func(list ...netip.AddrPort) {
			mu.Lock()
			defer mu.Unlock()
			answers["b:80"] = list
		}
		r.lookup = func(ctx context.Context, hostPort string) []netip.AddrPort {
			mu.Lock()
			asked++
			list := answers[hostPort]
			mu.Unlock()
			if list == nil {
				<-ctx.Done()
			}
			return list
		}
		defer r.close()
		start := time.Now()
		want := func(name string, list ...netip.AddrPort) {
			t.Helper()
			if got := r.resolve(name); !slices.Equal(got, list) {
				t.Errorf("%s is %v, want %v", name, got, list)
			}
		}
		want("192.0.2.9:80", netip.MustParseAddrPort("192.0.2.9:80"))
		for i := range 4 {
			want(fmt.Sprintf("dead-%d:80", i))
		}
		want("b:80")
		synctest.Wait()
		if !time.Now().Equal(start) || !r.changed.Swap(false) {
			t.Error("a lookup without an answer delays others, or a result was not signaled")
		}
		want("b:80", one)
		if asked != 5 {
			t.Errorf("%d lookups, want 5", asked)
		}
		answer(one, two)
		time.Sleep(resolvePace + time.Second)
		want("b:80", one)
		synctest.Wait()
		want("b:80", one, two)
		r.changed.Store(false)
		answer([]netip.AddrPort{}...) // no addresses
		time.Sleep(resolvePace + time.Second)
		want("b:80", one, two)
		synctest.Wait()
		want("b:80", one, two)
		if r.changed.Load() {
			t.Error("removed name changed the addresses")
		}
	})
}

// TestResolverBounds: a peer that announces many names causes a limited number of lookups and cache
// entries, and evicts no name in use.
func TestResolverBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, running, most := newResolver(), 0, 0
		r.lookup = func(ctx context.Context, hostPort string) []netip.AddrPort {
			if hostPort == "used:80" {
				return []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:80")}
			}
			r.mu.Lock()
			running++
			most = max(most, running)
			r.mu.Unlock()
			<-ctx.Done()
			r.mu.Lock()
			running--
			r.mu.Unlock()
			return nil
		}
		defer r.close()
		r.resolve("used:80")
		synctest.Wait()
		for i := range 3 * maxNames {
			r.resolve(fmt.Sprintf("%d:80", i))
			if i%64 == 0 {
				time.Sleep(time.Second)
				if len(r.resolve("used:80")) != 1 {
					t.Fatal("a name in use was evicted")
				}
			}
			if len(r.known) > maxNames {
				t.Fatalf("%d names cached", len(r.known))
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if most > maxLookups {
			t.Errorf("%d concurrent lookups", most)
		}
	})
}
