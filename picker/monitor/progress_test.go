package monitor

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestSlowStepIsNotStalled: a step over 5,000 endpoints that takes a minute reports progress to the
// watchdog. A step that stands still is stalled within 3 s.
func TestSlowStepIsNotStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dog := watchdog.New(watchdog.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go dog.Run(ctx)
		var sent, hangAt atomic.Int64
		hangAt.Store(-1)
		free := make(chan struct{})
		pool := endpoint.NewPool(endpoint.PoolOptions{})
		m, err := Open(Options{Pool: pool, Watch: dog.Loop("engine health"), Publish: func(string, []byte) error {
			if sent.Add(1) == hangAt.Load() {
				<-free
			}
			time.Sleep(3 * time.Millisecond)
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		specs := make([]endpoint.Spec, 5000)
		for i := range specs {
			specs[i].Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)
		}
		pool.Set(specs)
		for sent.Load() < int64(len(specs)) {
			time.Sleep(100 * time.Millisecond)
			if got := dog.Stalled(); len(got) > 0 {
				t.Fatalf("stalled %v after %d of %d messages", got, sent.Load(), len(specs))
			}
		}
		hangAt.Store(sent.Load() + 100)
		pool.Set(specs[:1000])
		time.Sleep(5 * time.Second)
		if got := dog.Stalled(); !slices.Equal(got, []string{"engine health"}) {
			t.Errorf("stalled %v, want the loop that stands still", got)
		}
		close(free)
	})
}
