package demo

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Load of RunBatch.
const (
	batchSlots = 32 // concurrent sequences per engine
	batchUsers = 400
	batchStep  = 40 * time.Second
	batchWarm  = 12 * time.Second
	chatRate   = 8 // interactive requests per second
)

// Interactive users wait for the first token. Batch jobs need throughput.
var (
	question = workload.Kind{Name: "question", Turns: 1, UserTokens: 1000, Spread: .6, Answer: 60}
	job      = workload.Kind{Name: "job", Turns: 1, UserTokens: 200, Spread: .5, Answer: 150}
)

// batchConfig limits the requests in engines to their concurrent sequences, and keeps a few
// sequences free of batch requests.
const batchConfig = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, name: gate, parameters: {maxConcurrency: 32}}
- {type: priority-holdback-policy, name: room, parameters: {minCeiling: 0.96}}
objectives:
- {name: interactive, priority: 10}
- {name: batch, priority: -1}
flowControl:
  saturationDetector: {pluginRef: gate}
  usageLimitPolicyPluginRef: room
  defaultRequestTTL: 0s
`

// BatchSummary holds the results of [RunBatch].
type BatchSummary struct {
	Engines, Replicas, Slots int
	Rows                     []BatchRow // interactive alone; with batch and no queue; with batch and a queue
}

// BatchRow holds the results of one arrangement.
type BatchRow struct {
	Name           string
	First          []time.Duration // times to first token of interactive requests, sorted
	Requests       uint64          // interactive
	Failed         uint64
	LastError      error
	BatchFailed    uint64
	BatchError     error
	TokensASecond  float64 // of batch answers
	EnginesWaiting float64 // mean number of requests that wait inside the engines
}

// Quantile returns a quantile of the times to first token.
func (r *BatchRow) Quantile(q float64) time.Duration {
	if len(r.First) == 0 {
		return 0
	}
	return r.First[min(int(q*float64(len(r.First))), len(r.First)-1)]
}

// RunBatch measures interactive requests without batch jobs, with batch jobs and no queue, and with
// batch jobs and a queue. All processes have ended when it returns.
func RunBatch(ctx context.Context, o Options) (*BatchSummary, error) {
	o.Step, o.Warm, o.Slots = cmp.Or(o.Step, batchStep), cmp.Or(o.Warm, batchWarm), cmp.Or(o.Slots, batchSlots)
	o.KVTokens = cmp.Or(o.KVTokens, 4*rig.KVTokens)
	s := &BatchSummary{Engines: o.Engines, Replicas: o.Replicas, Slots: o.Slots}
	fmt.Fprintln(o.Out, BatchHeader())
	for _, a := range []struct {
		name    string
		queue   bool
		workers int
	}{{"interactive alone", true, 0}, {"beside batch, no queue", false, batchUsers}, {"beside batch, queue", true, batchUsers}} {
		o := o
		o.Flags = waitLong
		if a.queue {
			o.Config = batchConfig
		}
		row := BatchRow{Name: a.name}
		err := o.stage(ctx, QualityCase{Sharing: rig.Shared}, func(g *group) error { return g.beside(ctx, &row, a.workers) })
		switch {
		case ctx.Err() != nil:
			return nil, ErrInterrupted
		case err != nil:
			return nil, fmt.Errorf("demo: %s: %w", a.name, err)
		}
		s.Rows = append(s.Rows, row)
		fmt.Fprintln(o.Out, s.line(&row))
	}
	return s, nil
}

// beside measures interactive requests while the given number of batch users is active.
func (g *group) beside(ctx context.Context, row *BatchRow, users int) error {
	var mu sync.Mutex
	counts := false
	talk, err := workload.Start(workload.Options{
		Source: workload.NewSource(question, 1, vocab.Name, 0), Client: g.client("interactive", 256), Rate: chatRate, Seed: 1, Timeout: 2 * time.Minute,
		Ended: func(_ time.Time, o *workload.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			if counts && o.Err == nil {
				row.First = append(row.First, o.TTFT)
			}
		},
	})
	if err != nil {
		return err
	}
	defer func() { drop(talk) }()
	jobs := talk
	if users > 0 {
		jobs, err = workload.Start(workload.Options{
			Source: workload.NewSource(job, 2, vocab.Name, 1), Client: g.client("batch", users), Users: users, Seed: 2, Backoff: flowBackoff,
		})
		if err != nil {
			return err
		}
		defer func() { drop(jobs) }()
	}
	if err := pause(g.o.Warm)(ctx); err != nil {
		return err
	}
	mu.Lock()
	counts = true
	mu.Unlock()
	before, work := talk.Totals(), jobs.Totals()
	watch := watchPlaces(g)
	err = pause(g.o.Step)(ctx)
	held := watch.end()
	if err != nil {
		return err
	}
	done := jobs.Totals()
	if users > 0 {
		all := done.Minus(&work)
		row.BatchFailed, row.BatchError = Failures(&all), jobs.LastError()
		row.TokensASecond = float64(done.OutputTokens-work.OutputTokens) / done.At.Sub(work.At).Seconds()
	}
	// Requests in flight count too, because the slow ones are among them.
	StopLoad(ctx, talk)
	now := talk.Totals()
	d := now.Minus(&before)
	row.Requests, row.Failed, row.LastError, row.EnginesWaiting = d.Requests, Failures(&d), talk.LastError(), held.waiting
	slices.Sort(row.First)
	return nil
}

// drop cancels the open requests of a load.
func drop(w *workload.Runner) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.Stop(ctx)
}

// client returns a client that sends an objective.
func (g *group) client(objective string, conns int) *workload.Client {
	c := workload.NewClient(g.URL, conns)
	c.Header = http.Header{http.CanonicalHeaderKey(request.HeaderObjective): {objective}}
	return c
}
