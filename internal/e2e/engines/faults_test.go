//go:build engines

package engines

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/command"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// envSidecar makes this program run as a sidecar; its value is a list of flags in JSON.
const envSidecar = "GRAPEVINE_ENGINES_SIDECAR"

var pairFull = flag.Bool("pair.full", false, "play 20 deaths and 15 pauses of a real pair (11 minutes), not 8 and 3")

// TestMain lets the test program run as a sidecar that tests can stop.
func TestMain(m *testing.M) {
	text := os.Getenv(envSidecar)
	if text == "" {
		os.Exit(m.Run())
	}
	var flags []string
	if err := json.Unmarshal([]byte(text), &flags); err != nil {
		panic(err)
	}
	cmd := command.New()
	cmd.SetArgs(flags)
	if err := cmd.Execute(); err != nil {
		os.Exit(1)
	}
}

// faultPair is a pair of engines with short leases, and a sidecar in its own process.
type faultPair struct {
	prefill, decode *forked
	target          string // that the sidecar uses for prefill
	url, metrics    string // of the sidecar
	pid             int
	damage          sync.Map // request id → replacement of its KV transfer
}

func openFaultPair(t *testing.T) *faultPair {
	t.Helper()
	began := time.Now()
	f, model := startForks(t), writeBytes(t)
	p := &faultPair{prefill: f.engine(t, model), decode: f.engine(t, model)}
	p.prefill.ready(t)
	p.decode.ready(t)
	ports := freePorts(t, 2)
	p.url, p.metrics = fmt.Sprint("http://127.0.0.1:", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	flags, err := json.Marshal([]string{
		"--host=127.0.0.1", "--port=" + strconv.Itoa(ports[0]), "--engine=" + p.decode.url, "--secure-proxy=false", "--metrics=" + p.metrics,
		fmt.Sprintf("--lease=%ds", lease), "--log-level=error",
	})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envSidecar+"="+string(flags))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	testkit.Await(t, "the sidecar serves", func() bool {
		resp, err := http.Get(p.url + "/health")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	p.target = p.prefill.at
	t.Logf("two engines and a sidecar serve after %.0f s", time.Since(began).Seconds())
	return p
}

// count returns a counter of the sidecar, by a value of a label.
func (p *faultPair) count(t *testing.T, name, label string) (n int) {
	t.Helper()
	resp, err := http.Get("http://" + p.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "grapevine_sidecar_"+name+"{") && strings.Contains(line, `"`+label+`"`) {
			v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			if err != nil {
				t.Fatal(err)
			}
			n = int(v)
		}
	}
	return n
}

// said is an answer to a prompt.
type said struct {
	status int
	text   string
	err    error
}

// asking is one request.
type asking struct {
	path, prompt  string
	stream, split bool
	tokens        int
	more          map[string]any
	id            string
}

// send sends a request to a sidecar or an engine.
func (p *faultPair) send(to string, a asking) (out said) {
	body := map[string]any{"model": tiny, "max_tokens": max(a.tokens, 1), "temperature": 0, "stream": a.stream}
	switch a.path {
	case "/v1/completions":
		body["prompt"] = a.prompt
	default:
		body["messages"] = []message{{"user", a.prompt}}
	}
	if a.path != "/v1/messages" {
		body["ignore_eos"] = true
	}
	for k, v := range a.more {
		body[k] = v
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return said{err: err}
	}
	r, err := http.NewRequest(http.MethodPost, to+a.path, bytes.NewReader(raw))
	if err != nil {
		return said{err: err}
	}
	r.Header.Set("Content-Type", "application/json")
	if a.split {
		r.Header.Set(request.HeaderPrefiller, p.target)
	}
	if a.id != "" {
		r.Header.Set("X-Request-Id", a.id)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return said{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if out = (said{status: resp.StatusCode, err: err}); resp.StatusCode != http.StatusOK || err != nil {
		out.text = string(text)
		return out
	}
	if !a.stream {
		text = []byte("data: " + strings.ReplaceAll(string(text), "\n", " "))
	}
	for line := range strings.Lines(string(text)) {
		data, _ := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		var c struct {
			Choices []struct {
				Text           string
				Message, Delta struct{ Content string }
			}
			Content []struct{ Text string }
			Delta   struct{ Text string }
		}
		if json.Unmarshal([]byte(data), &c) != nil {
			continue
		}
		out.text += c.Delta.Text
		for _, x := range c.Choices {
			out.text += x.Text + x.Message.Content + x.Delta.Content
		}
		for _, x := range c.Content {
			out.text += x.Text
		}
	}
	return out
}

// TestRealPairFaults plays the faults of a real pair: prompts that end engines, damaged transfers, and
// processes that are stopped for longer than the lease.
func TestRealPairFaults(t *testing.T) {
	p := openFaultPair(t)
	t.Run("Pauses", p.pauses)
	t.Run("Damage", p.damages)
	t.Run("Killers", p.killers)
}

// kinds are the ways in which a prompt reaches the engines.
var kinds = []asking{{split: true}, {}, {split: true, stream: true}, {stream: true}}

// killers sends prompts that end the engine that computes them. Each ends one engine, also when it is
// repeated there, and is answered with 500.
func (p *faultPair) killers(t *testing.T) {
	began := time.Now()
	forms := []map[string]any{
		{"seed": 1, "temperature": 1}, // chunked prefill of a seeded request: a fault of this release on CPUs
		{"vllm_xargs": map[string]string{"die": "SIGSEGV"}}, {"vllm_xargs": map[string]string{"die": "SIGKILL"}},
		{"vllm_xargs": map[string]string{"die": "worker"}}, {"vllm_xargs": map[string]string{"die": "exit"}},
	}
	paths := []string{"/v1/completions", "/v1/chat/completions", "/v1/messages"}
	deaths := [2]int{}
	killers := 20
	if !*pairFull {
		killers = 8
	}
	for i := range killers {
		a, form := kinds[i%len(kinds)], forms[i/len(kinds)]
		a.path, a.more, a.tokens = paths[i%2], form, 8
		if form["seed"] == nil && i%5 == 2 {
			a.path = paths[2]
		}
		a.prompt = fmt.Sprintf("killer %d ", i) + strings.Repeat("the vine grows. ", 160)
		first, other := p.decode, p.prefill
		if a.split {
			first, other = p.prefill, p.decode
		}
		p.prefill.ready(t)
		p.decode.ready(t)
		before, beside := first.starts.Load(), other.starts.Load()
		got := p.send(p.url, a)
		testkit.PollUntil(func() bool {
			return first.starts.Load() >= before+2 || other.starts.Load() != beside || got.status != http.StatusInternalServerError
		})
		if got.status != http.StatusInternalServerError || first.starts.Load() != before+2 || other.starts.Load() != beside {
			t.Errorf("killer %d, %+v: status %d %.200q; the engine that computed it died %d times, the other %d; want 500, 2, 0",
				i, a.more, got.status, got.text, first.starts.Load()-before, other.starts.Load()-beside)
		}
		deaths[i%2] += int(first.starts.Load() - before)
	}
	p.prefill.ready(t)
	p.decode.ready(t)
	for _, a := range kinds {
		a.path, a.prompt, a.tokens = paths[0], "harmless "+strings.Repeat("the vine grows. ", 20), 8
		if got := p.send(p.url, a); got.status != http.StatusOK || got.text == "" {
			t.Errorf("after the killers: %+v", got)
		}
	}
	t.Logf("%d killers: %d deaths of the prefill engine, %d of the decode engine, %d refused; %.0f s",
		killers, deaths[0], deaths[1], p.count(t, "suspects_refused_total", "0"), time.Since(began).Seconds())
}

// prose returns an unique prompt of about n tokens.
func prose(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%c%d ", 'a'+rune(rng.IntN(26)), rng.IntN(1000))
	}
	return b.String()
}

// pauses stops the prefill engine, the decode engine and the sidecar for one to five leases, or for two in
// the short form, with requests in flight. No answer, and no follow-up, is wrong, and nearly all are answered.
func (p *faultPair) pauses(t *testing.T) {
	began := time.Now()
	rng := rand.New(rand.NewPCG(17, 5))
	const perPause = 7
	paths := []string{"/v1/completions", "/v1/chat/completions", "/v1/messages"}
	var sent, followed, wrong, lost int
	truth := func(a asking) string {
		a.split, a.stream, a.more = false, false, map[string]any{"cache_salt": "truth"}
		return p.send(p.prefill.url, a).text
	}
	check := func(what string, a asking, got said) {
		if want := truth(a); got.status != http.StatusOK || got.err != nil {
			lost++
			t.Logf("%s: %+v", what, got)
		} else if got.text != want {
			wrong++
			t.Errorf("%s (%s, split %v, stream %v): %q, want %q", what, a.path, a.split, a.stream, got.text, want)
		}
	}
	for _, party := range []string{"decode", "prefill", "sidecar"} {
		for leases := 1; leases <= 5; leases++ {
			if !*pairFull && leases != 2 {
				continue
			}
			pause := func(s syscall.Signal) {
				switch party {
				case "decode":
					p.decode.signal(s)
				case "prefill":
					p.prefill.signal(s)
				case "sidecar":
					_ = syscall.Kill(p.pid, s)
				}
			}
			list, answers := make([]asking, perPause), make([]said, perPause)
			var open sync.WaitGroup
			begin := func(from, to int) {
				for i := from; i < to; i++ {
					list[i] = asking{path: paths[i%3], prompt: prose(rng, 300+rng.IntN(700)), split: true, stream: i%2 == 1, tokens: 12}
					open.Go(func() { answers[i] = p.send(p.url, list[i]) })
				}
			}
			before := p.count(t, "prefills_total", "ok")
			prefilled := func(n int) {
				testkit.Await(t, "prompts are computed", func() bool { return p.count(t, "prefills_total", "ok") >= before+n })
			}
			switch party {
			case "decode": // transfers are read after their leases
				pause(syscall.SIGSTOP)
				begin(0, perPause)
				prefilled(perPause)
			case "prefill": // transfers are read from an engine that frees them
				p.decode.signal(syscall.SIGSTOP)
				begin(0, 4)
				prefilled(4)
				begin(4, perPause)
				time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond) // random, so that legs are in all states
				pause(syscall.SIGSTOP)
				p.decode.signal(syscall.SIGCONT)
			case "sidecar": // answers of the prefill engine arrive after the leases
				begin(0, perPause)
				time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
				pause(syscall.SIGSTOP)
			}
			// Other prompts use the blocks that are freed.
			stopped := time.Now()
			var fill sync.WaitGroup
			for i := range 24 {
				text := prose(rng, 1000)
				fill.Go(func() {
					time.Sleep(time.Duration(leases*lease*1000-1500+100*(i%20)) * time.Millisecond)
					p.send(p.prefill.url, asking{path: paths[0], prompt: text, more: map[string]any{"cache_salt": "fill"}})
				})
			}
			time.Sleep(time.Until(stopped.Add(time.Duration(leases)*lease*time.Second + 300*time.Millisecond)))
			pause(syscall.SIGCONT)
			open.Wait()
			fill.Wait()
			for i, a := range list {
				what := fmt.Sprintf("%s stopped for %d leases, prompt %d", party, leases, i)
				check(what, a, answers[i])
				for n, next := range []asking{a, a, a} {
					next.split, next.stream = n != 1, false
					if n == 2 {
						next.prompt += prose(rng, 100)
					}
					check(fmt.Sprintf("%s, follow-up %d", what, n), next, p.send(p.url, next))
					followed++
				}
			}
			sent += perPause
		}
	}
	t.Logf("%d prompts and %d follow-ups: %d wrong, %d not answered; %d transfers were stale, %d too old, %d failed; %.0f s", sent, followed, wrong, lost,
		p.count(t, "decode_retries_total", "stale_transfer"), p.count(t, "decode_retries_total", "expired"), p.count(t, "decode_retries_total", "transfer"), time.Since(began).Seconds())
	if lost*50 > sent+followed {
		t.Errorf("%d of %d requests were not answered, want 2%% at most", lost, sent+followed)
	}
}

// manyBlocks is a list of more blocks than a prompt of the test needs.
func manyBlocks(id string) string { return "[[" + strings.Repeat(id+",", 15) + id + "]]" }

// rewritten replaces a member of an object by several; an empty one is the original.
func rewritten(object []byte, key string, with []string) []byte {
	o, err := kvtransfer.Parse(object)
	if err != nil {
		return object
	}
	var members []string
	for _, k := range o.Keys() {
		original := fmt.Sprintf("%q:%s", k, o.Get(k))
		if k != key {
			members = append(members, original)
			continue
		}
		for _, w := range with {
			members = append(members, cmp.Or(w, original))
		}
	}
	return []byte("{" + strings.Join(members, ",") + "}")
}

// damages has the prefill engine's transfers damaged in all ways. The decode engine survives all of them.
func (p *faultPair) damages(t *testing.T) {
	began := time.Now()
	to, err := url.Parse(p.prefill.url)
	if err != nil {
		t.Fatal(err)
	}
	damaging := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			change, ok := p.damage.Load(r.Request.Header.Get("X-Request-Id"))
			if !ok || r.StatusCode != http.StatusOK {
				return nil
			}
			text, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			object := kvtransfer.Find(text, "kv_transfer_params")
			text = bytes.Replace(text, object, change.(func([]byte) []byte)(object), 1)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
			r.Header.Set("Content-Length", strconv.Itoa(len(text)))
			return nil
		},
	})
	defer damaging.Close()
	p.target = damaging.Listener.Addr().String()
	defer func() { p.target = p.prefill.at }()
	var fields []string
	first := asking{path: "/v1/completions", prompt: "the fields of a transfer", split: true, tokens: 2, id: "fields"}
	p.damage.Store(first.id, func(object []byte) []byte {
		o, err := kvtransfer.Parse(object)
		if err != nil {
			t.Error(err)
		}
		fields = o.Keys()
		return object
	})
	if got := p.send(p.url, first); got.status != http.StatusOK || len(fields) < 10 {
		t.Fatalf("%+v; a transfer has the fields %q", got, fields)
	}
	starts := p.decode.starts.Load()
	values := []string{"null", `""`, `"x"`, "[]", "[[]]", "[null]", `[["a"]]`, manyBlocks("0"), manyBlocks("999999"), "{}", "true", "false", "-1", "0", "1", "1.5", "70000", "1e99", `"\u0000"`}
	var changes []func([]byte) []byte
	var cases []string
	add := func(key string, with ...string) {
		cases = append(cases, fmt.Sprintf("%s as %q", key, with))
		changes = append(changes, func(object []byte) []byte { return rewritten(object, key, with) })
	}
	for _, key := range fields {
		add(key)
		add(key, "", "")
		add(key, "", `"foreign":{"a":[1]}`)
		for _, v := range values {
			add(key, fmt.Sprintf("%q:%s", key, v))
			add(key, "", fmt.Sprintf("%q:%s", key, v))
			add(key, fmt.Sprintf("%q:%s", key, v), "")
		}
	}
	// Fewer blocks than the prompt has, which are three or more.
	fewer := len(changes)
	for _, keep := range []func(ids [][]byte) [][]byte{
		func(ids [][]byte) [][]byte { return ids[:1] }, func(ids [][]byte) [][]byte { return ids[1:] },
		func(ids [][]byte) [][]byte { return ids[:len(ids)-1] }, func(ids [][]byte) [][]byte { return ids[len(ids)-1:] },
	} {
		cases = append(cases, "some blocks only")
		changes = append(changes, func(object []byte) []byte {
			groups, _ := kvtransfer.Elements(kvtransfer.Find(object, "remote_block_ids"))
			ids, _ := kvtransfer.Elements(groups[0])
			return rewritten(object, "remote_block_ids", []string{`"remote_block_ids":[[` + string(bytes.Join(keep(ids), []byte(","))) + `]]`})
		})
	}
	before := [2]int{p.count(t, "decode_retries_total", "no_hand_over"), p.count(t, "decode_retries_total", "transfer")}
	jobs, codes, mu := make(chan int), map[int]int{}, sync.Mutex{}
	var wg sync.WaitGroup
	rng := rand.New(rand.NewPCG(17, 7))
	prompts := make([]string, len(changes))
	for i := range prompts {
		prompts[i] = prose(rng, 70)
		if i >= fewer {
			prompts[i] = prose(rng, 300)
		}
	}
	for range 8 {
		wg.Go(func() {
			for i := range jobs {
				id := fmt.Sprint("damage-", i)
				p.damage.Store(id, changes[i])
				got := p.send(p.url, asking{path: "/v1/completions", prompt: prompts[i], split: true, stream: i%2 == 1, tokens: 2, id: id})
				mu.Lock()
				codes[got.status]++
				mu.Unlock()
				if n := p.decode.starts.Load() - starts; got.status != http.StatusOK || n > 0 && n < 3 {
					t.Errorf("%s: %d %.200q %v", cases[i], got.status, got.text, got.err)
				}
			}
		})
	}
	for i := range changes {
		jobs <- i
	}
	close(jobs)
	wg.Wait()
	if n := p.decode.starts.Load() - starts; n != 0 {
		t.Errorf("the decode engine died %d times", n)
	}
	t.Logf("%d damaged transfers of %d fields: answers by status %v, %d without a transfer, %d that decode failed with; the decode engine died %d times; %.0f s",
		len(changes), len(fields), codes, p.count(t, "decode_retries_total", "no_hand_over")-before[0], p.count(t, "decode_retries_total", "transfer")-before[1], p.decode.starts.Load()-starts, time.Since(began).Seconds())
}
