package e2e

import (
	"bytes"
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/core"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker"
	pickerconfig "github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// onePort is an engine that balances its ranks itself behind one port and one metrics page, with a
// scheduler that sees one endpoint. It runs in virtual time (synctest).
type onePort struct {
	ranks     []*core.Core
	page      *page.Page
	scanner   *scrape.Scanner
	begun     time.Time
	ep        *endpoint.Endpoint
	scheduler *picker.Scheduler
	named     engine.Hash // the last block
	answers   sync.WaitGroup
}

func openOnePort(t *testing.T, ranks int) *onePort {
	t.Helper()
	cfg := engine.Config{Blocks: engine.KVTokens70B / 16, BlockSize: 16}
	e := &onePort{
		page:    page.New(&page.Options{Model: "m", Ranks: ranks, Core: cfg}),
		scanner: scrape.NewScanner(), begun: time.Now(),
	}
	for rank := range ranks {
		c, err := core.New(core.Options{Engine: cfg, Speed: 1, Rank: rank})
		if err != nil {
			t.Fatal(err)
		}
		e.ranks = append(e.ranks, c)
	}
	pool := endpoint.NewPool(endpoint.PoolOptions{Now: time.Now})
	pool.Set([]endpoint.Spec{{Name: "e", Addr: netip.MustParseAddrPort("10.0.0.1:8000")}})
	e.ep = pool.Snapshot().Endpoints[0]
	m := engine.Model70B // the costs of a rank are given, so learning has nothing to correct
	e.ep.SetPriorCost(endpoint.Cost{
		Base: m.A / 1e3, PerToken: m.B / 1e6, PerPair: m.E / 1e9, Step: m.A / 1e3, PerSeq: m.C / 1e6, PerContext: m.D / 1e9, Idle: 1,
	})
	var err error
	if e.scheduler, err = picker.New(picker.Options{Pool: pool, Rules: pickerconfig.Default(pickerconfig.Options{Table: pd.Table()}).Rules, Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	return e
}

// scrape reads the metrics page. merged treats its ranks as one engine.
func (e *onePort) scrape(t *testing.T, merged bool) {
	t.Helper()
	var meters []*page.Meter
	for _, c := range e.ranks {
		meters = append(meters, c.Meter())
	}
	text := e.page.Append(nil, e.begun, time.Now(), meters, page.NewHTTPMeter())
	p, err := e.scanner.Scan(bytes.NewReader(text), endpoint.EngineVLLM)
	if err != nil || p.Ranks != len(e.ranks) || p.Blocks != len(e.ranks)*engine.KVTokens70B/16 {
		t.Fatalf("%d ranks, %d blocks, %v", p.Ranks, p.Blocks, err)
	}
	g := p.Sample(time.Now())
	if merged {
		g.Ranks = 1
	}
	e.ep.SetGauges(g)
}

// send places a prompt and returns the predicted seconds to its first token. first is called with
// the measured seconds.
func (e *onePort) send(t *testing.T, tokens int, first func(seconds float64)) float64 {
	t.Helper()
	ask := func() *request.Request {
		return &request.Request{Kind: request.KindChat, Model: "m", Target: "m", InputTokens: tokens, Stream: true, MaxTokens: 64}
	}
	x, err := e.scheduler.Explain(context.Background(), ask())
	if err != nil {
		t.Fatal(err)
	}
	d, err := e.scheduler.Choose(context.Background(), ask())
	if err != nil {
		t.Fatal(err)
	}
	least := slices.MinFunc(e.ranks, func(a, b *core.Core) int { return a.InFlight() - b.InFlight() })
	job, sent := core.NewJob(engine.Request{Prompt: tokens, Output: 64, Blocks: e.fresh(tokens / 16)}, false), time.Now()
	least.Submit(job)
	e.answers.Go(func() {
		d.Observe(request.Event{Kind: request.EventHeaders, At: time.Now(), Status: 200})
		for seen, over := 0, false; !over; {
			<-job.Notify
			var n int
			n, _, over, _ = job.State()
			switch {
			case seen == 0 && n > 0:
				first(time.Since(sent).Seconds())
				d.Observe(request.Event{Kind: request.EventFirstToken, At: time.Now()})
			case n > seen:
				d.Observe(request.Event{Kind: request.EventTokens, At: time.Now(), Tokens: n - seen})
			}
			seen = n
		}
		d.Done(request.Outcome{At: time.Now(), Status: 200, Complete: true})
	})
	return x.Predicted.TTFT / 1e3
}

// fresh returns names of blocks that no other prompt has.
func (e *onePort) fresh(blocks int) []engine.Hash {
	names := make([]engine.Hash, blocks)
	for i := range names {
		e.named++
		names[i] = e.named
	}
	return names
}

// load sends a burst of prompts and one more after it. It returns the ratios of predicted to
// measured time to first token: of the burst, and of the last prompt, whose prediction uses the
// costs learned from the burst.
func (e *onePort) load(t *testing.T, merged bool) (burst, after float64) {
	t.Helper()
	var mu sync.Mutex
	predicted, took := 0.0, 0.0
	send := func() {
		e.scrape(t, merged)
		predicted += e.send(t, 3000, func(seconds float64) {
			mu.Lock()
			defer mu.Unlock()
			took += seconds
		})
	}
	for range 64 {
		send()
		time.Sleep(3 * time.Millisecond)
		synctest.Wait()
	}
	e.answers.Wait()
	burst = predicted / took
	predicted, took = 0, 0
	send()
	e.answers.Wait()
	for _, c := range e.ranks {
		c.Close()
	}
	return burst, predicted / took
}

// TestFirstTokenOfRanks checks four ranks behind one port. The predicted wait is the wait of one
// rank with a quarter of the queue, and learning applies to one rank.
func TestFirstTokenOfRanks(t *testing.T) {
	for name, c := range map[string]struct {
		ranks        int
		merged       bool
		burst, after [2]float64 // minimum and maximum
	}{
		"one engine":                 {1, false, [2]float64{.75, 1.35}, [2]float64{.75, 1.35}},
		"four ranks":                 {4, false, [2]float64{.75, 1.35}, [2]float64{.75, 1.35}},
		"four, taken for one engine": {4, true, [2]float64{3, 5}, [2]float64{0, .5}},
	} {
		synctest.Test(t, func(t *testing.T) {
			burst, after := openOnePort(t, c.ranks).load(t, c.merged)
			t.Logf("%s: predicted / measured %.2f in a burst, %.2f after it", name, burst, after)
			if burst < c.burst[0] || burst > c.burst[1] || after < c.after[0] || after > c.after[1] {
				t.Errorf("%s: predicted / measured %.2f in a burst, want %v; %.2f after it, want %v", name, burst, c.burst, after, c.after)
			}
		})
	}
}
