package events

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// A stream counts as caught up once the batches sent before its connection have been applied, not
// when it is connected. Members that read it for others stop at that point.
func TestCaughtUpOnceReplayed(t *testing.T) {
	e := newFakeEngine(t, 1)
	e.publish(50)
	var mu sync.Mutex
	var links []Link
	applied, caughtAt := uint64(0), uint64(0)
	opt := testOptions()
	opt.OnDelta = func(u Update) {
		mu.Lock()
		defer mu.Unlock()
		applied = u.Last + 1
	}
	opt.OnLink = func(_ block.Source, l Link) {
		mu.Lock()
		defer mu.Unlock()
		links = append(links, l)
		if l == LinkCaught {
			caughtAt = applied
		}
	}
	seen := func(want ...Link) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			mu.Lock()
			got := slices.Clone(links)
			mu.Unlock()
			if slices.Equal(got, want) {
				return
			}
			if len(got) > len(want) || time.Now().After(end) {
				t.Fatalf("links %v, want %v", got, want)
			}
		}
	}
	r := openReader(t, opt)
	r.follow(e.stream())
	seen(LinkUp, LinkCaught)
	if caughtAt != 50 {
		t.Errorf("caught up with %d of 50 batches", caughtAt)
	}
	r.follow()
	seen(LinkUp, LinkCaught, LinkDown)
}
