package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar"
	"github.com/grapevine-epp/grapevine/pd/signed"
)

var (
	continueStreams = flag.Int("continue.streams", 200, "streams of TestContinue")
	continueUsers   = flag.Int("continue.users", 24, "streams of TestContinue at a time")
)

// envEngine makes this program run as an engine that can be killed; its value is the address, and the lease
// of an engine of a pair.
const envEngine = "GRAPEVINE_E2E_ENGINE"

// mortalSpeed makes a step of the engines take about 5 ms.
const mortalSpeed = 6

// runEngine serves until the process is killed.
func runEngine(address string) error {
	o := sim.Options{Greedy: true, Speed: mortalSpeed}
	o.Addr, address, _ = strings.Cut(address, " ")
	if lease, err := time.ParseDuration(address); err == nil && lease > 0 {
		o.PD, o.Greedy, o.Idle = &sim.PDOptions{Lease: lease}, false, lease
	}
	e, err := sim.Open(o)
	if err != nil {
		return err
	}
	fmt.Println(e.Addr())
	select {}
}

// engineProcess is an engine in its own process.
type engineProcess struct {
	cmd   *exec.Cmd
	addr  string
	lease time.Duration // 0: no engine of a pair
}

// start starts the engine, at the address of its last run if it has one.
func (e *engineProcess) start(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	at := e.addr
	if at == "" {
		at = "127.0.0.1:0"
	}
	started := testkit.PollUntil(func() bool { // another connection may use the port for a moment
		e.cmd = exec.Command(self)
		e.cmd.Env = append(os.Environ(), envEngine+"="+at+" "+e.lease.String())
		e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := e.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := e.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			_ = e.cmd.Wait()
			return false
		}
		e.addr = strings.TrimSpace(line)
		return true
	})
	if !started {
		t.Fatalf("no engine at %s", at)
	}
}

func (e *engineProcess) kill() {
	_ = e.cmd.Process.Kill() // it may already have ended
	_ = e.cmd.Wait()
}

// continueRig has engines in processes, each behind a sidecar in this process that continues streams.
type continueRig struct {
	*pdRig
	engines   []*engineProcess
	reference *sim.Engine // answers as the engines do, and is never killed
}

func openContinue(t *testing.T, engines int) *continueRig {
	t.Helper()
	r := &continueRig{pdRig: &pdRig{rig: begin(t), counts: prometheus.NewRegistry()}}
	t.Cleanup(func() {
		for _, e := range r.engines {
			e.kill()
		}
		r.closePD()
	})
	r.openFleet(rigOptions{engines: 1, engine: sim.Options{Greedy: true}})
	r.reference = r.fleet.Engines()[0]
	key := make([]byte, 32)
	signer, err := signed.NewSigner(key, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := signed.NewVerifier(time.Now, signer.Public())
	if err != nil {
		t.Fatal(err)
	}
	var list []fleet.Endpoint
	targets := sidecar.Signed{Verifier: verifier, Listed: sidecar.Listed{}}
	for i := range engines {
		e := &engineProcess{}
		e.start(t)
		r.engines = append(r.engines, e)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		front := l.Addr().String()
		targets.Listed[front] = sidecar.AnyRole
		h, err := sidecar.New(sidecar.Options{
			Engine: "http://" + e.addr, Targets: targets, Continue: true, KVTransfer: kvtransfer.Policy{Action: kvtransfer.Strip}, Head: patience,
			Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"engine": fmt.Sprint(i)}, r.counts),
		})
		if err != nil {
			t.Fatal(err)
		}
		r.serve(&http.Server{Handler: h, ReadHeaderTimeout: time.Minute}, l)
		r.front = append(r.front, front)
		list = append(list, fleet.Endpoint{Name: fmt.Sprintf("engine-%d", i), Namespace: "default", Address: "127.0.0.1", Port: portOf(t, front), Labels: map[string]string{sim.LabelEngineType: "vllm"}, Model: vocab.Name})
	}
	r.write(list)
	r.openReplica(func(o *server.Options) { o.Continuations, o.TargetsKey = 2, key })
	r.openEnvoy(rigOptions{})
	return r
}

// sum returns the sum of a counter over the sidecars, and its values by label reason.
func (r *continueRig) sum(name string) (total int, by map[string]int) {
	r.t.Helper()
	families, err := r.counts.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	by = map[string]int{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			total += int(m.GetCounter().GetValue())
			for _, l := range m.GetLabel() {
				if n := int(m.GetCounter().GetValue()); l.GetName() == "reason" && n > 0 {
					by[l.GetValue()] += n
				}
			}
		}
	}
	return total, by
}

// continueAnswer is an answer as a client reads it.
type continueAnswer struct {
	Text, Finish string
	Usage        struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
	marked int // tokens of the first engine, 0 for an answer that was not continued
}

// continueBody returns the n-th request, without stream.
func continueBody(n int) (path string, body map[string]any) {
	text := fmt.Sprintf("request %d of the engine that will die", n)
	body = map[string]any{"model": vocab.Name, "max_tokens": 40 + n%60, "temperature": 0}
	path = "/v1/completions"
	switch n % 3 {
	case 0:
		body["messages"] = []map[string]string{{"role": "user", "content": text}}
		path = "/v1/chat/completions"
	case 1:
		body["prompt"] = text
	default:
		body["prompt"] = vocab.New().AppendTokens(nil, []byte(text), true)
	}
	return path, body
}

// want returns the answer of an engine that is not disturbed.
func (r *continueRig) want(n int) (a continueAnswer) {
	path, body := continueBody(n)
	raw, _ := json.Marshal(body) // it has only texts and numbers
	resp, err := http.Post("http://"+r.reference.Addr()+path, "application/json", bytes.NewReader(raw))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct {
		Choices []struct {
			Text    string
			Message struct{ Content string }
			Finish  string `json:"finish_reason"`
		}
		Usage json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || len(out.Choices) != 1 {
		r.t.Fatalf("request %d: %v", n, err)
	}
	a.Text, a.Finish = out.Choices[0].Text+out.Choices[0].Message.Content, out.Choices[0].Finish
	_ = json.Unmarshal(out.Usage, &a.Usage)
	return a
}

// errStatus is the error of an answer that is not a stream.
var errStatus = errors.New("no stream")

// send returns the streamed answer to the n-th request. An error means that the client has noticed that
// the answer is not whole.
func (r *continueRig) send(n int) (a continueAnswer, err error) {
	path, body := continueBody(n)
	body["stream"], body["stream_options"] = true, map[string]bool{"include_usage": true}
	raw, _ := json.Marshal(body) // it has only texts and numbers
	resp, err := r.client.HTTP.Post(r.client.URL+path, "application/json", bytes.NewReader(raw))
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return a, fmt.Errorf("%w: %d %s", errStatus, resp.StatusCode, text)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	return a, a.read(string(text), strings.Contains(path, "chat"))
}

// errWrong is the error of an answer that no client should see.
var errWrong = errors.New("wrong stream")

// read reads a complete stream. It checks what clients rely on.
func (a *continueAnswer) read(stream string, chat bool) error {
	var id string
	roles, usages, dones := 0, 0, 0
	for event := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok || dones > 0 {
			return fmt.Errorf("%w: event %q", errWrong, event)
		}
		if data == "[DONE]" {
			dones++
			continue
		}
		var c struct {
			ID      string
			Choices []struct {
				Text   string
				Delta  struct{ Role, Content string }
				Finish string `json:"finish_reason"`
				IDs    []int  `json:"token_ids"`
			}
			Usage  *json.RawMessage
			Marker *struct {
				After int `json:"after_tokens"`
			} `json:"grapevine_continued"`
		}
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return fmt.Errorf("%w: event %q: %w", errWrong, data, err)
		}
		if id == "" {
			id = c.ID
		}
		if c.ID != id {
			return fmt.Errorf("%w: id %s follows %s", errWrong, c.ID, id)
		}
		for _, choice := range c.Choices {
			if a.Finish != "" && (choice.Finish != "" || choice.Text+choice.Delta.Content != "") || len(choice.IDs) > 0 {
				return fmt.Errorf("%w: event %q after the finish reason, or with token ids", errWrong, data)
			}
			a.Text, a.Finish = a.Text+choice.Text+choice.Delta.Content, a.Finish+choice.Finish
			if choice.Delta.Role != "" {
				roles++
			}
		}
		if c.Marker != nil {
			a.marked = c.Marker.After
		}
		if c.Usage != nil {
			usages++
			if err := json.Unmarshal(*c.Usage, &a.Usage); err != nil {
				return fmt.Errorf("%w: usage: %w", errWrong, err)
			}
		}
	}
	if chat != (roles == 1) || roles > 1 || usages != 1 || dones != 1 || a.Finish == "" {
		return fmt.Errorf("%w: %d roles, %d usages, %d [DONE], finish reason %q", errWrong, roles, usages, dones, a.Finish)
	}
	return nil
}

// TestContinue kills engines with SIGKILL while streams run behind Envoy. Every answer equals the one of an
// engine that was not killed. An answer whose second engine was killed too breaks off, so that the client
// notices, and the sidecar counts it.
func TestContinue(t *testing.T) {
	r := openContinue(t, 4)
	var next, whole, marked, broken, refusals, kills atomic.Int64
	var mu sync.Mutex
	var failures []string
	stop := make(chan struct{})
	var killer, clients sync.WaitGroup
	killer.Go(func() {
		for i := 0; ; i++ {
			e := r.engines[i%len(r.engines)]
			before := whole.Load()
			if !r.until(stop, func() bool { return r.running(e) >= 2 && whole.Load() >= before+int64(*continueUsers) }) {
				return
			}
			e.kill()
			kills.Add(1)
			e.start(t)
		}
	})
	for range *continueUsers {
		clients.Go(func() {
			for n := next.Add(1); n <= int64(*continueStreams); n = next.Add(1) {
				got, err := r.send(int(n))
				switch want := r.want(int(n)); {
				case errors.Is(err, errWrong):
					t.Errorf("request %d: %v", n, err)
				case err != nil:
					if errors.Is(err, errStatus) {
						refusals.Add(1)
					} else {
						broken.Add(1)
					}
					mu.Lock()
					failures = append(failures, err.Error())
					mu.Unlock()
				case got.Text != want.Text || got.Finish != want.Finish || got.Usage != want.Usage:
					t.Errorf("request %d, after %d tokens of the first engine:\n%+v, want\n%+v", n, got.marked, got, want)
				default:
					whole.Add(1)
					if got.marked > 0 {
						marked.Add(1)
					}
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	killer.Wait()
	continued, _ := r.sum("grapevine_sidecar_continued_total")
	refused, by := r.sum("grapevine_sidecar_not_continued_total")
	t.Logf("%d streams, %d kills: %d whole, %d of them continued (%d counted); %d broke off (%d counted, with probes of the picker: %v), %d got an error",
		*continueStreams, kills.Load(), whole.Load(), marked.Load(), continued, broken.Load(), refused, by, refusals.Load())
	if marked.Load() < kills.Load() || kills.Load() < 3 {
		t.Errorf("%d streams were continued after %d kills", marked.Load(), kills.Load())
	}
	if continued != int(marked.Load()) || refused < int(broken.Load()) {
		t.Errorf("%d continued and %d other streams were counted, the clients saw %d and %d", continued, refused, marked.Load(), broken.Load())
	}
	if n := broken.Load() + refusals.Load(); n*50 > int64(*continueStreams) {
		slices.Sort(failures)
		t.Errorf("%d of %d streams broke off: %q", n, *continueStreams, slices.Compact(failures))
	}
}

// until waits for a condition. It returns false if stop is closed first.
func (r *continueRig) until(stop chan struct{}, ok func() bool) bool {
	for {
		if ok() {
			return true
		}
		select {
		case <-stop:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// running returns the number of requests that an engine runs.
func (r *continueRig) running(e *engineProcess) int {
	front := r.front[slices.Index(r.engines, e)]
	for _, s := range r.servers[0].Status().Endpoints {
		if s.Address == front {
			return int(s.InFlight)
		}
	}
	return 0
}
