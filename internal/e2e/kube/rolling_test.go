//go:build kube

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/internal/testkit/hub"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

const (
	llm      = "llm"
	enginePt = 8000
	// lag is how long a gateway continues to send to a picker that has got SIGTERM.
	lag = 3 * time.Second
)

// byPrefix considers only cached prefixes. It is a value of the chart.
const byPrefix = `{"apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig","plugins":[{"type":"precise-prefix-cache-scorer"},{"type":"max-score-picker"}],` +
	`"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"precise-prefix-cache-scorer"},{"pluginRef":"max-score-picker"}]}]}`

// rollout is a pool of engines, a group of replicas and a gateway under load. The replicas are the
// pods of the installed chart, each started as specified; the engines are pods for the API server.
type rollout struct {
	t        *testing.T
	c        *kubekit.Cluster
	pods     *podkit.Kit
	envoy    *dataplane
	engines  map[int]*sim.Engine
	replicas map[int]*podkit.Pod
	served   map[int]bool // replicas to which the gateway sends
	client   *workload.Client
}

// TestRolling replaces every replica and then every engine under load, one after the other as a
// Deployment does. No request fails, and prompts are found in the caches as before. The replicas
// download the model's files from a hub.
func TestRolling(t *testing.T) {
	r := openRollout(t)
	cold, before := r.pass(), r.pass()
	t.Logf("hits of the first two passes: %.4f %.4f", cold, before)
	if before < .95 {
		t.Fatalf("hits %.4f", before)
	}
	load, err := workload.Start(workload.Options{Source: workload.NewSource(chats, 7, vocab.Name, .3), Client: r.client, Users: 4, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 3; i++ {
		r.replace(i, i+3)
	}
	r.settled()
	if now := r.pass(); now < before-.01 {
		t.Errorf("hits %.4f after all replicas were replaced, %.4f before", now, before)
	} else {
		t.Logf("hits after all replicas were replaced: %.4f", now)
	}
	replicas := load.Totals()
	for i := 1; i <= 3; i++ {
		r.startEngine(i + 3)
		r.drainEngine(i)
	}
	// Fills the caches of the new engines.
	r.pass()
	if now := r.pass(); now < before-.01 {
		t.Errorf("hits %.4f after all engines were replaced, %.4f before", now, before)
	} else {
		t.Logf("hits after all engines were replaced: %.4f", now)
	}
	load.Stop(context.Background())
	r.audit()
	all := load.Totals()
	t.Logf("%d requests while replicas were replaced, %d in all; %d failed, %d answered wrong", replicas.Requests, all.Requests, all.Errors, all.Wrong)
	if all.Errors+all.Wrong > 0 || replicas.Requests < 20 {
		t.Errorf("%d of %d requests failed (%d while replicas were replaced), %d were answered wrong, the last: %v", all.Errors, all.Requests, replicas.Errors, all.Wrong, load.LastError())
		for i, p := range r.replicas {
			t.Logf("replica %d:\n%s", i, p.Log("epp"))
		}
	}
}

// prompts consists of single, unrelated requests; chats is the background load.
var (
	prompts = workload.Kind{Name: "prompts", Turns: 1, UserTokens: 800, Spread: .5, Answer: 8}
	chats   = workload.Kind{Name: "chats", Turns: 4, UserTokens: 200, Spread: .5, Answer: 40, Think: 200 * time.Millisecond}
)

func openRollout(t *testing.T) *rollout {
	t.Helper()
	r := &rollout{t: t, c: kubekit.Start(t, "gateway", "inference"), engines: map[int]*sim.Engine{}, replicas: map[int]*podkit.Pod{}, served: map[int]bool{}}
	folder := t.TempDir()
	if err := vocab.New().WriteModel(folder); err != nil {
		t.Fatal(err)
	}
	models := hub.StartAt(t, podkit.NodeAddress(t), podkit.NodeAddress(t))
	models.Add(t, repository, folder)
	r.c.Namespace(llm)
	values := filepath.Join(t.TempDir(), "values.yaml")
	text, err := json.Marshal(map[string]any{
		"pool": map[string]any{"create": true, "matchLabels": map[string]any{"app": "vllm"}}, "events": map[string]any{"port": 5557, "replayPort": 5558},
		"config": byPrefix, "modelFiles": map[string]any{"endpoint": models.URL}, "drainSeconds": 60,
	})
	if err == nil {
		err = os.WriteFile(values, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.c.Command("helm", "", "install", "llama", "../../../deploy/helm/grapevine", "-n", llm, "-f", values); err != nil {
		t.Fatalf("helm install: %v\n%s", err, out)
	}
	r.pods = podkit.Open(t, r.c, map[string]podkit.Image{"grapevine:dev": {
		Files: map[string]string{"/grapevine": filepath.Join(testkit.Build(t, "grapevine"), "grapevine")}, Entrypoint: []string{"/grapevine"}, User: 65532,
	}})
	r.pods.Expose(llm)
	r.envoy = startDataplane(t)
	r.client = workload.NewClient("http://127.0.1.1", 64)
	t.Cleanup(r.close)
	for i := 1; i <= 3; i++ {
		r.startEngine(i)
	}
	for i := 1; i <= 3; i++ {
		r.startReplica(i)
	}
	for i := 1; i <= 3; i++ {
		r.ready(i)
	}
	r.settled()
	r.envoy.routes(names[0], map[string][]any{"*": {map[string]any{"match": map[string]any{"prefix": "/"}, "route": map[string]any{"timeout": "0s", "cluster": "pool llama"}, "typed_per_filter_config": pickedBy("llama", false)}}})
	r.c.Until("the gateway serves", func() bool {
		resp, err := http.Get("http://127.0.1.1/v1/models")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return r
}

// repository is the model's name at the hub.
const repository = "lab/tiny"

func (r *rollout) close() {
	r.client.Close()
	for _, e := range r.engines {
		_ = e.Close()
	}
}

func (r *rollout) startEngine(i int) {
	r.t.Helper()
	ip := podkit.NodeAddress(r.t)
	e, err := sim.Open(sim.Options{Addr: fmt.Sprintf("%s:%d", ip, enginePt), Root: repository, Speed: 20, Events: &sim.EventOptions{Addr: ip + ":5557", Replay: ip + ":5558"}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.engines[i] = e
	r.c.Pod(llm, kubekit.Pod{Name: fmt.Sprintf("vllm-%d", i), IP: ip, Labels: `{"app":"vllm"}`})
	r.program()
	if len(r.replicas) > 0 {
		r.everywhere(fmt.Sprintf("engine %d is known", i), func(st *known) bool { return slices.Contains(st.addrs(), e.Addr()) })
	}
}

// drainEngine deletes a pod as a Deployment does: it is terminating, finishes its requests, and
// ends.
func (r *rollout) drainEngine(i int) {
	r.t.Helper()
	name, addr := fmt.Sprintf("vllm-%d", i), r.engines[i].Addr()
	if code, answer := r.c.Do(http.MethodDelete, kubekit.Pods.Path(llm, name)+"?gracePeriodSeconds=60", nil, ""); code != http.StatusOK {
		r.t.Fatalf("delete: %d %s", code, answer)
	}
	r.everywhere(name+" is no longer chosen", func(st *known) bool { return !slices.Contains(st.addrs(), addr) })
	quiet := 0
	r.c.Until(name+" has nothing left to do", func() bool {
		if quiet++; r.busy(addr) {
			quiet = 0
		}
		return quiet >= 20
	})
	if err := r.engines[i].Close(); err != nil {
		r.t.Error(err)
	}
	delete(r.engines, i)
	r.c.Delete(kubekit.Pods, llm, name)
	r.program()
}

// busy reports whether an engine has requests, by its metrics page.
func (r *rollout) busy(addr string) bool {
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	page, _ := io.ReadAll(resp.Body)
	for line := range strings.Lines(string(page)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ = strings.Cut(name, "{")
		n, _ := strconv.ParseFloat(value, 64)
		if (name == "vllm:num_requests_running" || name == "vllm:num_requests_waiting") && n > 0 {
			return true
		}
	}
	return false
}

func (r *rollout) startReplica(i int) { r.replicas[i] = r.pods.Deployment(llm, "llama-epp") }

// ready waits for the probes, and adds the replica to the gateway.
func (r *rollout) ready(i int) {
	r.t.Helper()
	r.replicas[i].WaitReady()
	r.served[i] = true
	r.program()
}

// replace starts a replica, and when it is ready terminates another one. The gateway stops sending to
// that one a while later.
func (r *rollout) replace(old, by int) {
	r.t.Helper()
	r.startReplica(by)
	r.ready(by)
	p := r.replicas[old]
	ended := make(chan error, 1)
	go func() { ended <- p.Terminate() }()
	select {
	case <-time.After(lag): // until then the gateway uses the old endpoints
	case <-ended:
		r.t.Fatalf("%s ended while the gateway still sent to it", p.Name)
	}
	delete(r.served, old)
	r.program()
	if err := <-ended; err != nil {
		r.t.Error(err)
	}
	if code, err := p.Wait("epp", time.Second); err != nil || code != 0 {
		r.t.Errorf("%s ended with %d (%v):\n%s", p.Name, code, err, p.Log("epp"))
	}
	p.Remove()
	delete(r.replicas, old)
}

// program gives Envoy the endpoints and pickers of the moment.
func (r *rollout) program() {
	var endpoints, pickers []any
	for i := range 10 {
		if e := r.engines[i]; e != nil {
			host, _, _ := net.SplitHostPort(e.Addr()) // a listener's address
			endpoints = append(endpoints, address(host, enginePt))
		}
		if r.served[i] {
			pickers = append(pickers, address(r.replicas[i].IP, 9002))
		}
	}
	r.envoy.clusters([]any{poolCluster("pool llama", endpoints, false), pickerCluster("epp llama", pickers)})
}

// known is the part of a replica's status that the test uses.
type known struct {
	State     string `json:"state"`
	Endpoints []struct {
		Address   string `json:"address"`
		Knowledge string `json:"knowledge"`
	} `json:"endpoints"`
}

func (k *known) addrs() (list []string) {
	for i := range k.Endpoints {
		list = append(list, k.Endpoints[i].Address)
	}
	return list
}

// everywhere waits until every replica's status has the wanted values.
func (r *rollout) everywhere(what string, ok func(*known) bool) {
	r.t.Helper()
	var last string
	defer func() {
		if r.t.Failed() {
			r.t.Logf("the last status: %s", last)
		}
	}()
	r.c.Until(what+" everywhere", func() bool {
		for _, p := range r.replicas {
			out, err := p.Exec("epp", "/grapevine", "status", "-o", "json")
			last = out
			var st known
			if err != nil && out == "" || json.Unmarshal([]byte(out), &st) != nil || !ok(&st) {
				return false
			}
		}
		return true
	})
}

// settled waits until every replica's state of every engine is exact.
func (r *rollout) settled() {
	r.t.Helper()
	r.everywhere("all caches are known", func(st *known) bool {
		for i := range st.Endpoints {
			if st.Endpoints[i].Knowledge != "exact" {
				return false
			}
		}
		return len(st.Endpoints) == len(r.engines)
	})
}

// pass asks 30 prompts and returns the share of their tokens that engines found cached.
func (r *rollout) pass() float64 {
	r.t.Helper()
	tally := r.ask()
	return tally.HitRatio()
}

// audit sends the prompts again. The replicas' predicted cached tokens must equal the engines'
// reports, to one part in two hundred, because prompts without events yet are estimated in blocks.
func (r *rollout) audit() {
	r.t.Helper()
	r.c.Until("nothing is in flight", func() bool { return r.counts().inFlight == 0 })
	before := r.counts()
	tally := r.ask()
	var now counts
	r.c.Until("what engines reported is counted", func() bool {
		now = r.counts()
		return now.inFlight == 0 && now.reported-before.reported >= float64(tally.CachedTokens)
	})
	predicted, reported := now.predicted-before.predicted, now.reported-before.reported
	r.t.Logf("engines reported %.0f of %d prompt tokens as cached, %.0f were predicted", reported, tally.PromptTokens, predicted)
	if over := predicted - reported; math.Abs(over) > reported/200 || reported != float64(tally.CachedTokens) {
		r.t.Errorf("clients received %d cached tokens", tally.CachedTokens)
	}
}

// counts are sums over all replicas.
type counts struct{ predicted, reported, inFlight float64 }

func (r *rollout) counts() (c counts) {
	r.t.Helper()
	sums := map[string]*float64{
		"grapevine_picker_predicted_cached_tokens_total": &c.predicted, "grapevine_picker_reported_cached_tokens_total": &c.reported,
		"grapevine_picker_inflight_requests": &c.inFlight,
	}
	for _, p := range r.replicas {
		resp, err := http.Get("http://" + p.IP + ":9090/metrics")
		if err != nil {
			r.t.Fatal(err)
		}
		page, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			r.t.Fatal(err)
		}
		for line := range strings.Lines(string(page)) {
			name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			if name, _, _ = strings.Cut(name, "{"); sums[name] != nil {
				v, _ := strconv.ParseFloat(text, 64)
				*sums[name] += v
			}
		}
	}
	return c
}

// ask asks 30 prompts.
func (r *rollout) ask() workload.Totals {
	r.t.Helper()
	w, err := workload.Start(workload.Options{Source: workload.NewSource(prompts, 5, vocab.Name, .5), Client: r.client, Users: 2, Sessions: 30, Timeout: time.Minute})
	if err != nil {
		r.t.Fatal(err)
	}
	w.Wait()
	w.Stop(context.Background())
	tally := w.Totals()
	if tally.Errors+tally.Wrong > 0 {
		r.t.Errorf("%d of %d prompts failed, %d were answered wrong: %v", tally.Errors, tally.Requests, tally.Wrong, w.LastError())
	}
	return tally
}
