package main

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/report"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// Recorded load: engines at twenty times real speed, and their clients.
const (
	recordedSpeed  = 20
	recordedBlocks = 20_000 // of 16 tokens

	recordedSessions = 24
)

// site runs engines, a replica in its own process, and a real Envoy.
type site struct {
	t      *testing.T
	admin  string
	client *workload.Client
}

func openSite(t *testing.T, flags ...string) *site {
	t.Helper()
	dir := t.TempDir()
	list, model := filepath.Join(dir, "endpoints.yaml"), filepath.Join(dir, "model")
	if err := vocab.New().WriteModel(model); err != nil {
		t.Fatal(err)
	}
	fleet, err := fleet.Open(fleet.Options{Engines: 4, EndpointsFile: list, Engine: sim.Options{
		Speed: recordedSpeed, Events: &sim.EventOptions{},
		Core: engine.Config{BlockSize: 16, Blocks: recordedBlocks, Model: engine.Model70B},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fleet.Close() })
	at := []string{parts.FreeAddress(t), parts.FreeAddress(t)}
	s := &site{t: t, admin: at[1]}
	grapevine := filepath.Join(testkit.Build(t, "grapevine"), "grapevine")
	s.start(grapevine, append([]string{"serve", "--endpoints", list, "--model", vocab.Name + "=" + model, "--listen", at[0], "--health", "-", "--admin", s.admin}, flags...)...)
	if out, err := exec.Command(grapevine, "status", "--admin", s.admin, "--wait").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var engines []string
	for _, e := range fleet.Engines() {
		engines = append(engines, e.Addr())
	}
	conf, err := envoyconf.Render(envoyconf.Params{
		Kind: envoyconf.Resilient, MessageTimeout: time.Minute, NetworkTimeout: testkit.NetworkTimeout, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", ExtProc: at[:1], Endpoints: engines,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.client = workload.NewClient("http://"+testkit.StartEnvoy(t, conf).Addr("inference"), 64)
	s.client.SessionHeader = "x-session-id"
	t.Cleanup(s.client.Close)
	return s
}

// start runs a program in the background until the test ends.
func (s *site) start(program string, args ...string) (*exec.Cmd, *parts.Output) {
	s.t.Helper()
	out := &parts.Output{}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
	})
	return cmd, out
}

// recorded plays conversations during a recording. It returns the trace file, the output of record,
// and the clients' totals.
func (s *site) recorded(seed uint64, flags ...string) (path, said string, seen workload.Totals) {
	s.t.Helper()
	path = filepath.Join(s.t.TempDir(), "yesterday.jsonl")
	cmd, out := s.start("grapevine-lab", append([]string{"record", "--admin", s.admin, "--output", path}, flags...)...)
	testkit.Await(s.t, "a recording", func() bool { return strings.Contains(out.String(), "recording from ") })
	kind := workload.Kind{Name: "talk", Shared: 6, Zipf: 1.2, SharedTokens: 3000, Turns: 6, UserTokens: 400, Spread: .5, Answer: 60, Think: 30 * time.Millisecond}
	run, err := workload.Start(workload.Options{
		Client: s.client, Source: workload.NewSource(kind, seed, vocab.Name, .3), Users: recordedSessions, Sessions: recordedSessions, Timeout: time.Minute,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	run.Wait()
	if seen = run.Totals(); seen.Errors+seen.Wrong > 0 {
		s.t.Errorf("%d of %d requests failed: %v", seen.Errors+seen.Wrong, seen.Requests, run.LastError())
	}
	// The replica learns of ended requests after the clients, and the recording after the replica.
	testkit.Await(s.t, "the end of all requests", func() bool { return s.inFlight() == 0 })
	time.Sleep(3 * time.Second)
	_ = cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err != nil {
		s.t.Fatalf("record: %v: %s", err, out)
	}
	return path, out.String(), seen
}

// inFlight returns the number of requests that the replica counts, or -1 if it does not answer.
func (s *site) inFlight() (n int64) {
	resp, err := http.Get("http://" + s.admin + "/status")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	var st server.Status
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
		return -1
	}
	for _, e := range st.Endpoints {
		n += e.InFlight
	}
	return n
}

// replayed replays a recorded trace unchanged on the same kind of engines.
func (s *site) replayed(path string) (tr *trace.Trace, hits map[string]float64, notes string) {
	s.t.Helper()
	cmd := exec.Command("grapevine-lab", "replay", "--trace", path, "--own-load", "--warmup", "0", "--engines", "4x20",
		"--blocks", "625", "--policy", "default,load_only", "--json", "-")
	var errs strings.Builder
	cmd.Stderr = &errs
	raw, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("replay: %v: %s", err, errs.String())
	}
	var report report.Report
	if err := json.Unmarshal(raw, &report); err != nil {
		s.t.Fatal(err)
	}
	hits = map[string]float64{}
	for i := range report.Rows {
		hits[report.Rows[i].Policy] = report.Rows[i].Runs[0].HitRatio
	}
	if tr, err = trace.Open(path, trace.ReadOptions{}); err != nil {
		s.t.Fatal(err)
	}
	return tr, hits, errs.String()
}

// TestRecordReplay replays a recording made behind a real Envoy. The same policy must find as many
// cached tokens as the engines counted, also if no response body was read.
func TestRecordReplay(t *testing.T) {
	t.Parallel() // it mostly waits
	s := openSite(t, "--sample-bodies", "-1")
	path, said, seen := s.recorded(7, "--bodies")
	tr, hits, notes := s.replayed(path)
	prompt, answers := totals(tr)
	if n := len(tr.Requests); n != int(seen.Requests) || prompt != int(seen.PromptTokens) || answers != int(seen.OutputTokens) {
		t.Errorf("recorded %d requests, %d prompt and %d answer tokens, clients saw %d, %d and %d: %s",
			n, prompt, answers, seen.Requests, seen.PromptTokens, seen.OutputTokens, said)
	}
	if r := tr.Recorded; r.Cached != int(seen.CachedTokens) || r.Unseen != 0 || tr.Sessions != recordedSessions || notes != "" {
		t.Errorf("%+v of %d sessions, clients saw %d tokens cached: %s", r, tr.Sessions, seen.CachedTokens, notes)
	}
	s.close(hits, seen.HitRatio())

	// The replica has learned the length of tokens, so prompt sizes are roughly right.
	path, said, seen = s.recorded(8)
	tr, hits, notes = s.replayed(path)
	prompt, _ = totals(tr)
	if n, d := len(tr.Requests), float64(prompt)/float64(seen.PromptTokens); n != int(seen.Requests) || d < .95 || d > 1.05 {
		t.Errorf("recorded %d requests and %d prompt tokens, clients saw %d and %d: %s", n, prompt, seen.Requests, seen.PromptTokens, said)
	}
	if r := tr.Recorded; r.Counted != 0 || r.Unseen != len(tr.Requests) || !strings.Contains(notes, "was not recorded and is assumed") {
		t.Errorf("%+v: %s", r, notes)
	}
	s.close(hits, seen.HitRatio())
}

func totals(tr *trace.Trace) (prompt, answers int) {
	for _, r := range tr.Requests {
		prompt, answers = prompt+r.Input, answers+r.Output
	}
	return prompt, answers
}

// close checks that the recorded policy finds about as many cached tokens, with blocks of 512
// tokens instead of 16, and that another policy does not.
func (s *site) close(hits map[string]float64, counted float64) {
	s.t.Helper()
	s.t.Logf("cached: counted %.3f, replayed %.3f, under load_only %.3f", counted, hits["default"], hits["load_only"])
	if d := hits["default"] - counted; d > .25 || d < -.25 {
		s.t.Errorf("replay finds %.3f cached, engines counted %.3f", hits["default"], counted)
	}
	if hits["load_only"] >= hits["default"] {
		s.t.Errorf("load_only finds %.3f cached, the default policy %.3f", hits["load_only"], hits["default"])
	}
}
