package facts

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// TestBlockedLoopsAreStalled blocks the group's states while loops send to them. The watchdog names
// the loops until they go on.
func TestBlockedLoopsAreStalled(t *testing.T) {
	open := make(chan struct{})
	state := func(string, uint64, cluster.GaugeSink) SetFunc {
		return func(string, []byte) error { <-open; return nil }
	}
	g := Group{Gauge: state, Pulse: state}
	log, dirty := slog.New(slog.DiscardHandler), make(chan struct{}, 1)
	dirty <- struct{}{}
	dog := watchdog.New(watchdog.Options{})
	load := NewLoad(LoadOptions{Group: g, Pool: endpoint.NewPool(endpoint.PoolOptions{}), Now: time.Now, Log: log, Watch: dog.Loop("load")})
	queues := NewQueues(g, Queue{
		Changes: func(_ bool, tell func(string, []rules.Gauge)) { tell("m", nil) },
		Answers: func(func(string, rules.Answer)) {},
		Dirty:   dirty,
		Watch:   dog.Loop("queues"),
	}, log)
	for _, run := range []func(){func() { dog.Run(t.Context()) }, func() { load.Run(t.Context()) }, func() { queues.Run(t.Context()) }} {
		go run()
	}
	load.note("127.0.0.1:8000")
	testkit.Await(t, "both loops stall", func() bool { return slices.Equal(dog.Stalled(), []string{"load", "queues"}) })
	close(open)
	testkit.Await(t, "no loop is stalled", func() bool { return len(dog.Stalled()) == 0 })
}
