package e2e

import (
	"flag"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// queueLong makes TestQueueOutlivesReplicas kill a replica every 20 s for this long, and check shares.
var queueLong = flag.Duration("queue.long", 0, "kill one of three replicas every 20 s for this long")

const fairQueue = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, name: gate, parameters: {maxConcurrency: 2}}
- {type: round-robin-fairness-policy, name: tenants}
flowControl:
  saturationDetector: {pluginRef: gate}
  defaultRequestTTL: 0s
  defaultPriorityBand: {fairnessPolicyRef: tenants, maxRequests: 10000}
`

// queuePermits is the capacity by fairQueue.
const queuePermits = 2 * partyEngines

// queueUsers is the demand of each tenant. Each exceeds a third of the capacity.
var queueUsers = []int{16, 32, 96}

var queueAnswer = workload.Kind{Name: "turn", Turns: 1, UserTokens: 30, Spread: .5, Answer: 60}

// queueParty is a party whose pool is full all the time.
type queueParty struct {
	*party
	work    *workload.Work
	runners []*workload.Runner
	most    atomic.Int64 // requests in all engines at once, since the last reset
	mostAt  atomic.Int64 // when they were, unix ns
}

// TestQueueOutlivesReplicas checks that requests which wait at a replica keep waiting at another one
// when the replica is killed, stopped or restarted. None is lost, none passes the queue, and the
// engines do not get more than the permits.
func TestQueueOutlivesReplicas(t *testing.T) {
	q := openQueueParty(t, fairQueue)
	q.stretch("all live", nil, nil)
	if *queueLong > 0 {
		q.killAgain(*queueLong)
		return
	}
	q.stretch("one is killed", func() { q.childs[2].kill() }, func() { q.comeBack(2) })
	q.stretch("one hangs", func() {
		before := q.moved()
		q.signal(1, syscall.SIGSTOP)
		testkit.Await(t, "its requests are moved", func() bool { return q.moved() > before })
	}, func() { q.signal(1, syscall.SIGCONT) })
	q.stretch("one is restarted", func() { // before its queue has ended
		before := q.moved()
		defer func() {
			if q.moved() == before {
				t.Error("no request was moved from the replica that shut down")
			}
		}()
		if err := q.childs[0].terminate(); err != nil {
			t.Errorf("the replica ended with %v", err)
		}
	}, func() { q.comeBack(0) })
}

// TestQueueMovesToFullQueues: almost as many requests as the queue accepts wait when a replica is
// restarted. The moved requests find the others up but full: each counts once, so none is refused, and
// the limit of permits holds.
func TestQueueMovesToFullQueues(t *testing.T) {
	total := 0
	for _, n := range queueUsers {
		total += n
	}
	q := openQueueParty(t, strings.Replace(fairQueue, "maxRequests: 10000", fmt.Sprintf("maxRequests: %d", total+8), 1))
	q.stretch("all live", nil, nil)
	before := q.moved()
	q.stretch("one is restarted", func() {
		if err := q.childs[0].terminate(); err != nil {
			t.Errorf("the replica ended with %v", err)
		}
	}, func() { q.comeBack(0) })
	if q.moved() == before {
		t.Error("no request was moved from the replica that shut down")
	}
}

func openQueueParty(t *testing.T, config string) *queueParty {
	t.Helper()
	q := &queueParty{party: openParty(t, partyOptions{
		kind: envoyconf.Resilient, config: configFile(t, config),
		engine: &sim.Options{Speed: 1, Core: engine.Config{BlockSize: 16, Blocks: 20_000, Model: engine.Model70B}},
		params: func(p *envoyconf.Params) { p.MessageTimeout, p.NetworkTimeout = 10*patience, 3*time.Second },
		child:  func(o *childOptions) { o.MessageTimeout, o.Linger, o.Drain = 10*patience, 5*time.Second, 8*time.Second },
	})}
	q.client.HTTP.Transport.(*http.Transport).MaxConnsPerHost = 0
	q.work = workload.NewWork(len(queueUsers), time.Now(), 250*time.Millisecond)
	for i, users := range queueUsers {
		client := workload.NewClient(q.client.URL, users)
		client.Header = http.Header{http.CanonicalHeaderKey(request.HeaderFairness): {string(rune('a' + i))}}
		w, err := workload.Start(workload.Options{
			Source: workload.NewSource(queueAnswer, uint64(i+1), vocab.Name, 1), Client: client, Users: users, Seed: uint64(i + 1), Timeout: 10 * patience,
			Ended: func(at time.Time, o *workload.Outcome) {
				if o.Err == nil {
					q.work.Add(i, at, min(o.Latency, time.Second), float64(o.OutputTokens))
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		q.runners = append(q.runners, w)
		t.Cleanup(func() { w.Stop(t.Context()); client.Close() })
	}
	// The first requests arrive at all replicas at once, before any has reported what it holds.
	testkit.Await(t, "the pool is full", func() bool { n, _, _ := q.totals(); return n >= 2*queuePermits })
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go q.watch(stop)
	return q
}

// watch counts the requests in engines.
func (q *queueParty) watch(stop chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		n := 0
		for _, e := range q.fleet.Engines() {
			for _, s := range e.Stats() {
				n += s.Engine.Running + s.Engine.Waiting
			}
		}
		if int64(n) > q.most.Load() {
			q.most.Store(int64(n))
			q.mostAt.Store(time.Now().UnixNano())
		}
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

func (q *queueParty) totals() (answered, failed uint64, last error) {
	for _, w := range q.runners {
		t := w.Totals()
		bad := t.Errors + t.Wrong
		answered, failed = answered+t.Requests-bad, failed+bad
		if bad > 0 {
			last = w.LastError()
		}
	}
	return answered, failed, last
}

// stretch lets something happen to a replica, waits for four rounds of answers, ends it, and checks
// the stretch.
func (q *queueParty) stretch(name string, do, undo func()) {
	q.t.Helper()
	q.most.Store(0)
	begun := time.Now()
	before, _, _ := q.totals()
	if do != nil {
		do()
	}
	testkit.Await(q.t, name+": requests are answered", func() bool { n, _, _ := q.totals(); return n >= before+4*queuePermits })
	if undo != nil {
		undo()
	}
	q.check(name, begun)
}

// moved returns how many requests have asked a second replica.
func (q *queueParty) moved() int {
	const stat = "http.inference.ext_proc.picker_second.streams_started"
	return q.envoy.Stats(q.t, stat)[stat]
}

// check compares the time since begun with the promises.
func (q *queueParty) check(name string, begun time.Time) {
	q.t.Helper()
	n, failed, last := q.totals()
	passed := q.passedBy()
	q.t.Logf("%s: %v, %d answered, %d failed, %d moved, %d passed the queue, at most %d of %d permits (after %v)",
		name, time.Since(begun).Round(time.Second/10), n, failed, q.moved(), passed, q.most.Load(), queuePermits, time.Unix(0, q.mostAt.Load()).Sub(begun).Round(time.Millisecond))
	if failed > 0 {
		q.t.Errorf("%s: %d requests failed, the last: %v", name, failed, last)
	}
	if passed > 0 {
		q.t.Errorf("%s: Envoy placed %d requests itself", name, passed)
	}
	if most := q.most.Load(); float64(most) > math.Ceil(1.1*queuePermits) {
		q.t.Errorf("%s: %d requests in engines with %d permits", name, most, queuePermits)
	}
}

// killAgain kills a replica every 20 s, and checks the shares of each ten seconds.
func (q *queueParty) killAgain(d time.Duration) {
	begun := time.Now()
	for i := 0; time.Since(begun) < d; i++ {
		q.most.Store(0)
		at := time.Now()
		which := i % partyReplicas
		q.childs[which].kill()
		testkit.Await(q.t, "ten seconds have passed", func() bool { return time.Since(at) > 10*time.Second })
		q.comeBack(which)
		testkit.Await(q.t, "twenty seconds have passed", func() bool { return time.Since(at) > 20*time.Second })
		q.check("killed", at)
	}
	worst := make([]float64, len(queueUsers))
	for _, w := range q.work.Windows(begun, time.Now().Add(-3*time.Second), 10*time.Second) {
		fair := w.Sum() / float64(len(w.Done))
		for i, v := range w.Done {
			if off := (v - fair) / max(fair, 1); math.Abs(off) > math.Abs(worst[i]) {
				worst[i] = off
			}
		}
	}
	q.t.Logf("largest deviation from the share in ten seconds: %+.3f", worst)
	for i, off := range worst {
		if math.Abs(off) > .1 {
			q.t.Errorf("tenant %d is %+.1f%% off its share, want 10%%", i, 100*off)
		}
	}
}

// comeBack restarts a replica and waits until all have joined and Envoy asks it.
func (q *queueParty) comeBack(i int) {
	q.t.Helper()
	q.revive(i)
	q.joined()
	q.everyReplica()
}

func (q *queueParty) signal(i int, s syscall.Signal) {
	q.t.Helper()
	if err := q.childs[i].cmd.Process.Signal(s); err != nil {
		q.t.Fatal(err)
	}
}
