package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// once sends n requests one after the other and counts their status codes; 0 stands for no answer.
func (p *party) once(n int) map[int]int {
	p.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"prompt":"once upon a time","max_tokens":2}`, vocab.Name)
	got := map[int]int{}
	for range n {
		resp, err := p.client.HTTP.Post(p.client.URL+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			got[0]++
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		got[resp.StatusCode]++
	}
	return got
}

// answered asserts that n requests are answered, and that Envoy routed passed requests without a
// replica.
func (p *party) answered(when string, n, passed int) {
	p.t.Helper()
	before := p.passedBy()
	if got := p.once(n); got[http.StatusOK] != n {
		p.t.Errorf("%s: answers %v, want %d times 200", when, got, n)
	}
	if got := p.passedBy() - before; got != passed {
		p.t.Errorf("%s: Envoy placed %d of %d requests itself, want %d", when, got, n, passed)
	}
}

// TestEnvoyUsesLiveReplicas checks that an Envoy configured by xDS asks a replica for every request
// while one lives, including a replica that has just started.
func TestEnvoyUsesLiveReplicas(t *testing.T) {
	p := openParty(t, partyOptions{})
	p.answered("all live", 6, 0)
	p.childs[0].kill()
	p.answered("one was killed", 10, 0)
	p.revive(0)
	p.joined()
	p.everyReplica()
	p.childs[1].kill()
	p.childs[2].kill()
	p.answered("only the newcomer lives", 20, 0)
	p.childs[0].kill()
	p.answered("nobody lives", 10, 10)
}

// medium consists of single requests of 64 KB to 256 KB.
var medium = workload.Kind{Name: "medium", Turns: 1, UserRange: [2]int{10_000, 40_000}, Answer: 12, Completions: true}

// TestFullDuplexKilled checks the full-duplex mode. Only requests inside the killed replica fail.
// With all replicas dead all requests fail, until one returns.
func TestFullDuplexKilled(t *testing.T) {
	const users = 8
	p := openParty(t, partyOptions{kind: envoyconf.Gateway})
	w, err := workload.Start(workload.Options{
		Source: workload.NewSource(medium, 11, vocab.Name, .3), Client: p.client, Users: users, Seed: 11, Timeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "requests are under way", func() bool { return w.Totals().Requests > 2*users })
	before := w.Totals()
	p.childs[0].kill()
	testkit.Await(t, "requests go on", func() bool { return w.Totals().Requests > before.Requests+3*users })
	w.Stop(t.Context())
	tally := w.Totals()
	if tally.Errors > users || tally.Wrong+tally.Aborted > 0 || before.Errors > 0 {
		t.Errorf("%d failed before, %d with the kill of one replica, %d wrong, %d unanswered; at most %d were inside it, the last: %v",
			before.Errors, tally.Errors, tally.Wrong, tally.Aborted, users, w.LastError())
	}
	t.Logf("%d of %d requests failed mid-body at the killed replica", tally.Errors, tally.Requests)
	p.answered("one was killed", 40, 0)
	for _, c := range p.childs {
		c.kill()
	}
	if got := p.once(10); got[http.StatusInternalServerError] != 10 {
		t.Errorf("without a live replica: answers %v, want 10 times 500", got)
	}
	p.revive(1)
	testkit.Await(t, "Envoy asks the one that is back", func() bool { return p.once(1)[http.StatusOK] == 1 })
	p.answered("one is back", 40, 0)
}

// TestHitsReturn checks that hits survive restarts of replicas: over each pass of the same prompts
// the engines report as many cached tokens as before, within one percentage point.
func TestHitsReturn(t *testing.T) {
	p := openParty(t, partyOptions{kind: envoyconf.Resilient, config: configFile(t, prefixOnly)})
	before := p.warm()
	same := func(what string) {
		t.Helper()
		now := p.pass()
		t.Logf("%s: hits %.4f, before %.4f", what, now, before)
		if now < before-.01 {
			t.Errorf("%s: hits %.4f, before %.4f", what, now, before)
		}
	}
	p.childs[2].kill()
	same("one was killed")
	p.childs[1].kill()
	same("one of three lives")
	p.revive(1)
	p.newcomer(2)
	same("it is back")
	for i := range p.childs {
		if err := p.childs[i].terminate(); err != nil {
			t.Errorf("replica %d ended with %v", i, err)
		}
		p.newcomer(i)
	}
	same("all were rolled")
	for _, c := range p.childs {
		c.kill()
	}
	passed := p.passedBy()
	p.pass()
	if got := p.passedBy() - passed; got != 30 {
		t.Errorf("with every replica killed Envoy placed %d of 30 requests itself", got)
	}
	p.revive(0, 1, 2)
	p.joined()
	p.everyReplica()
	same("all are back")
}

// TestHitsApart checks replicas that cannot reach each other: each reads every engine itself,
// reports it, and finds the cached prompts.
func TestHitsApart(t *testing.T) {
	p := openParty(t, partyOptions{kind: envoyconf.Resilient, config: configFile(t, prefixOnly), apart: true})
	p.warm()
	for i := range p.childs {
		last := ""
		if !testkit.PollUntil(func() bool {
			st, err := p.status(i)
			if err != nil {
				last = err.Error()
				return false
			}
			c := &st.Cluster
			last = fmt.Sprintf("%s: %+v, %d engines not known exactly, %d decisions", st.Name, c, inexact(st), st.Decisions)
			return c.State == "alone" && strings.Contains(c.Line, "key") && strings.Contains(c.Fallback, "reads 12 of 12 event streams itself") &&
				inexact(st) == 0 && st.Decisions > 0
		}) {
			t.Error(last)
		}
	}
}

// pass sends 30 prompts and returns the share of their tokens that the engines had cached.
func (p *party) pass() float64 {
	p.t.Helper()
	tally := p.run(workload.Options{Source: workload.NewSource(prompts, 5, vocab.Name, .5), Users: 2, Sessions: 30})
	return tally.HitRatio()
}

// warm sends the prompts twice and asserts that the second pass hits the caches.
func (p *party) warm() (hits float64) {
	p.t.Helper()
	cold, hits := p.pass(), p.pass()
	if hits < .98 || cold > .5 {
		p.t.Fatalf("hits of the first two passes: %.3f, %.3f", cold, hits)
	}
	return hits
}

// prefixOnly considers only cached prefixes.
const prefixOnly = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: precise-prefix-cache-scorer}
- {type: max-score-picker}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: precise-prefix-cache-scorer}, {pluginRef: max-score-picker}]
`

// prompts consists of single, unrelated requests.
var prompts = workload.Kind{Name: "prompts", Turns: 1, UserTokens: 800, Spread: .5, Answer: 8}

// newcomer restarts a replica and asserts that it gets no requests and is not ready before its
// state of every engine is exact.
func (p *party) newcomer(i int) {
	p.t.Helper()
	stop, looks := make(chan struct{}), make(chan string)
	go func() {
		defer close(looks)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			st, err := p.status(i)
			if err == nil {
				if bad := early(st); bad != "" {
					looks <- bad
					return
				}
			}
		}
	}()
	p.revive(i)
	close(stop)
	for bad := range looks {
		p.t.Error(bad)
	}
	if st, err := p.status(i); err != nil || len(st.Endpoints) != partyEngines || st.Index.Entries == 0 {
		p.t.Errorf("the new replica is ready with %+v, %v", st, err)
	}
	p.joined()
	p.everyReplica()
}

// early returns which step a replica took too early, or "".
func early(st *server.Status) string {
	switch n := inexact(st); {
	case st.State == "ready" && n > 0:
		return fmt.Sprintf("%s is ready and does not know %d engines exactly: %s", st.Name, n, notExact(st))
	case st.State != "ready" && st.Decisions > 0:
		return fmt.Sprintf("%s is %s and has decided %d requests", st.Name, st.State, st.Decisions)
	}
	return ""
}
