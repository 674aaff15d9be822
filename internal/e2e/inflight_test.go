package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// diary is an engine's own log of the begin and the end of each request. Replicas do not read it.
type diary struct {
	mu   sync.Mutex
	open map[string]time.Time // begin by request ID
	done []span
}

type span struct{ begin, end time.Time }

func (d *diary) begin(h http.Header) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[string]time.Time{}
	}
	d.open[h.Get("X-Request-Id")] = time.Now()
}

func (d *diary) end(h http.Header) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := h.Get("X-Request-Id")
	d.done = append(d.done, span{d.open[id], time.Now()})
	delete(d.open, id)
}

// between returns how many requests ran from the first time to the second, and how many ran at any time
// between them, or were on their way to the engine. The former do not contain requests that began shortly before death: a replica that
// died then had not reported them.
func (d *diary) between(from, to, death time.Time) (throughout, ever int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	reported := func(begin time.Time) bool { return begin.Before(death.Add(-reportLag)) || begin.After(death) }
	for _, begin := range d.open {
		if !begin.After(from) && reported(begin) {
			throughout++
		}
		if !begin.After(to.Add(dispatchLag)) {
			ever++
		}
	}
	for i := len(d.done) - 1; i >= 0 && !d.done[i].end.Before(from); i-- {
		s := d.done[i]
		if !s.begin.After(from) && s.end.After(to) && reported(s.begin) {
			throughout++
		}
		if !s.begin.After(to.Add(dispatchLag)) {
			ever++
		}
	}
	return throughout, ever
}

// diaries are the logs of a fleet, by engine.
type diaries []diary

func (l diaries) record(i int, o *sim.Options) {
	o.OnRequest = l[i].begin
	o.OnDone = l[i].end
}

// reportLag is how long before its death a replica may have dispatched requests without having reported
// them: what it collects and sends together, on a busy machine.
const reportLag = 150 * time.Millisecond

// dispatchLag is how long a dispatched request may take to its engine.
const dispatchLag = 300 * time.Millisecond

// countLag is how late a replica may know of a request's begin or end.
const countLag = time.Second

// auditor compares replicas' in-flight counts with the engines' logs until it is stopped.
type auditor struct {
	logs    diaries
	address map[string]int // engine by address

	mu     sync.Mutex
	exempt map[int]time.Time // replicas that are not compared until a time; zero: until further notice
	death  time.Time         // of the last replica that died
	looks  int
	wrong  []string
	stop   chan struct{}
	wg     sync.WaitGroup
}

// audit looks at every replica several times a second.
func (r *rig) audit(logs diaries, replicas int, status func(int) (*server.Status, error)) *auditor {
	a := &auditor{logs: logs, address: map[string]int{}, exempt: map[int]time.Time{}, stop: make(chan struct{})}
	for i, e := range r.fleet.Engines() {
		a.address[e.Addr()] = i
	}
	for i := range replicas {
		a.wg.Go(func() {
			for {
				select {
				case <-a.stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
				begun := time.Now()
				st, err := status(i)
				if ended := time.Now(); err == nil {
					a.wg.Go(func() {
						time.Sleep(dispatchLag)
						a.compare(i, st, begun, ended)
					})
				}
			}
		})
	}
	return a
}

// dies records the death of a replica.
func (a *auditor) dies(how func()) {
	how()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.death = time.Now()
}

// except leaves a replica out of the comparison; again from countLag after resume on.
func (a *auditor) except(i int) { a.mu.Lock(); defer a.mu.Unlock(); a.exempt[i] = time.Time{} }
func (a *auditor) resume(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.exempt[i] = time.Now().Add(countLag)
}

func (a *auditor) compare(i int, st *server.Status, begun, ended time.Time) {
	if st.State == "starting" || st.State == "joining" || ended.Sub(begun) > countLag {
		return // it does not serve, or the machine stood still
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if until, exempt := a.exempt[i]; exempt && (until.IsZero() || begun.Before(until)) {
		return
	}
	a.looks++
	for _, ep := range st.Endpoints {
		throughout, ever := a.logs[a.address[ep.Address]].between(begun.Add(-countLag), ended, a.death)
		if ep.InFlight < throughout || ep.InFlight > ever {
			a.wrong = append(a.wrong, fmt.Sprintf("%s replica %d, %s (%s): %d in flight at engine %d, which had %d all the time and %d at some time within %v",
				ended.Format("05.000"), i+1, st.State, st.Cluster.Line, ep.InFlight, a.address[ep.Address], throughout, ever, countLag))
		}
	}
}

// close stops the comparison and reports what differed.
func (a *auditor) close(t *testing.T) {
	t.Helper()
	close(a.stop)
	a.wg.Wait()
	t.Logf("%d looks, %d counts differ from the engines' logs by more than %v", a.looks, len(a.wrong), countLag)
	for _, w := range a.wrong[:min(len(a.wrong), 20)] {
		t.Error(w)
	}
	if a.looks == 0 {
		t.Error("no replica was compared")
	}
}

// longRequests keeps n requests of some seconds in flight until stop is called, which waits for the
// last ones and asserts that none failed.
func (r *rig) longRequests(n int) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed, done := 0, 0
	for i := range n {
		wg.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-end:
					return
				default:
				}
				body := fmt.Sprintf(`{"model":%q,"prompt":"request %d of %d","max_tokens":%d,"ignore_eos":true}`, vocab.Name, k, i, 80+(37*i+61*k)%160)
				resp, err := r.client.HTTP.Post(r.client.URL+"/v1/completions", "application/json", strings.NewReader(body))
				code := 0
				if err == nil {
					code = resp.StatusCode
					if _, err := io.Copy(io.Discard, resp.Body); err != nil {
						code = 0
					}
					resp.Body.Close()
				}
				mu.Lock()
				if done++; code != http.StatusOK {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	return func() {
		r.t.Helper()
		close(end)
		wg.Wait()
		if failed > 0 {
			r.t.Errorf("%d of %d requests failed", failed, done)
		}
		r.t.Logf("%d requests", done)
	}
}

// seconds are engines whose requests take some seconds.
func seconds() *sim.Options {
	return &sim.Options{Speed: 1, Core: engine.Config{BlockSize: 16, Blocks: 20_000, Model: engine.Model70B}}
}

// TestInFlightEqualsEngines: while requests of some seconds run, a replica is killed, stopped for a while,
// or rolled. At every moment each living replica's in-flight count of each engine contains the requests
// that have run there for a second, and none that ended longer ago; the leaving replica's too. No request
// fails.
func TestInFlightEqualsEngines(t *testing.T) {
	logs := make(diaries, partyEngines)
	p := openParty(t, partyOptions{kind: envoyconf.Resilient, engine: seconds(), each: logs.record})
	stop := p.longRequests(36)
	running := func() (n int64) {
		for i := range logs {
			now := time.Now()
			_, ever := logs[i].between(now, now, time.Time{})
			n += ever
		}
		return n
	}
	testkit.Await(t, "requests are in flight", func() bool { return running() >= 30 })
	time.Sleep(countLag)
	for _, tc := range []struct {
		name string
		does func(*auditor)
	}{
		{"calm", func(*auditor) { time.Sleep(3 * time.Second) }},
		{"kill -9", func(a *auditor) {
			a.dies(p.childs[0].kill)
			time.Sleep(6 * time.Second)
			p.revive(0)
			p.everyReplica()
		}},
		{"SIGSTOP", func(a *auditor) {
			a.except(1)
			defer a.resume(1)
			a.dies(func() { p.signal(1, syscall.SIGSTOP) })
			time.Sleep(6 * time.Second)
			p.signal(1, syscall.SIGCONT)
			p.everyReplica()
		}},
		{"all rolled", func(*auditor) {
			for i := range p.childs {
				if err := p.childs[i].terminate(); err != nil {
					t.Errorf("replica %d ended with %v", i+1, err)
				}
				p.revive(i)
				p.everyReplica()
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := p.audit(logs, partyReplicas, p.status)
			tc.does(a)
			time.Sleep(2 * countLag)
			a.close(t)
		})
	}
	stop()
}

// signal sends a signal to a replica.
func (p *party) signal(i int, s syscall.Signal) {
	p.t.Helper()
	if err := p.childs[i].cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}
