package multicluster

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// TestFit: the hot set's limit follows the engines' cache size, up to the configured limit. Unknown
// sizes and small changes have no effect.
func TestFit(t *testing.T) {
	hot := filter.NewHot(10_000)
	secret, err := filter.NewSecret(make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	p := &Part{o: Options{
		Read: func() *federation.View { return &federation.View{Secret: secret} },
		Hot:  func(*filter.Secret) *filter.Hot { return hot },
	}}
	for _, c := range []struct {
		tokens int64
		want   int
	}{
		{0, 10_000}, {64 * 1000, 1000}, {0, 1000}, {64 * 1100, 1000}, {64 * 2000, 2000}, {64 * 1900, 2000}, {1 << 40, 10_000}, {64 * 9990, 10_000}, {1, 1},
	} {
		p.fit(c.tokens)
		if got := hot.Capacity(); got != c.want {
			t.Errorf("with caches of %d tokens: %d blocks, want %d", c.tokens, got, c.want)
		}
	}
	(&Part{}).fit(1) // nothing is recorded
}

// TestPartial: if prompts arrive faster than they are recorded, the status reports it.
func TestPartial(t *testing.T) {
	p := &Part{hot: make(chan prompt, 2), dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "x"})}
	p.keys.New = func() any { return []block.Key(nil) }
	for range 2 {
		p.stays(nil, []block.Key{1})
	}
	if got := p.partial(time.Now()); got != "" {
		t.Errorf("without losses: %q", got)
	}
	p.stays(nil, []block.Key{2})
	p.stays(nil, []block.Key{3})
	if got := p.partial(time.Now().Add(90 * time.Second)); got != "partial: 2 prompts were dropped because they arrived too fast, the last 1m30s ago" {
		t.Error(got)
	}
}
