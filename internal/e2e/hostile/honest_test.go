//go:build hostile

package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// honestEnv selects the role of the process with the honest clients.
const honestEnv = "GRAPEVINE_HOSTILE_HONEST"

// TestMain runs the tests, or the honest clients as a separate process.
func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(honestEnv) {
	case "":
		os.Exit(m.Run())
	case "idle":
		err = serveIdle(os.Stdin, func(at string) error { _, err := fmt.Println(at); return err })
	default:
		err = serveHonest(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// order is a command from the test to the honest process.
type order struct {
	Do    string `json:"do"`              // ask, beside, stop, lie, truth, federate
	Front string `json:"front,omitempty"` // ask: Envoy's address; beside: a sidecar's
	Pick  string `json:"pick,omitempty"`  // ask: the program's listener for proxies
	Path  string `json:"path,omitempty"`  // lie, truth: the path that the hostile engine answers; federate: a cluster's file
	Liar  string `json:"liar,omitempty"`  // lie: the URL that answers it
}

// side is what the honest process reports at its start.
type side struct {
	Engines []string         // their addresses
	List    []fleet.Endpoint // the same for an endpoints file
	Liar    string           // URL of the engine that answers as instructed
	Plain   string           // URL of an engine whose answers have 4 KiB
}

// asked holds the results of honest requests.
type asked struct {
	Times, Own []time.Duration // latencies through Envoy or at a sidecar; at the program directly
	Failed     int
	Failures   []string      // at a sidecar
	Smuggled   int64         // requests that carried headers reserved for pickers
	Silent     time.Duration // time without an answer to the other cluster
}

// serveHonest starts engines and honest clients and executes orders until in ends.
func serveHonest(in io.Reader, out io.Writer) error {
	fleet, err := fleet.Open(fleet.Options{Engines: 3, Engine: sim.Options{
		Speed: 1e6, Events: &sim.EventOptions{},
		MaxBody: 1 << 20, // they share the machine with the program; reading 8 MB bodies would take their CPU time
	}})
	if err != nil {
		return err
	}
	defer fleet.Close()
	l, err := openLiar(fleet.Engines()[0].Addr())
	if err != nil {
		return err
	}
	defer l.Close()
	plain := httptest.NewServer(http.HandlerFunc(answerPlainly))
	defer plain.Close()
	first := side{List: fleet.Endpoints(), Liar: l.URL, Plain: plain.URL}
	for _, e := range fleet.Engines() {
		first.Engines = append(first.Engines, e.Addr())
	}
	w := json.NewEncoder(out)
	if err := w.Encode(first); err != nil {
		return err
	}
	var stop func() asked
	var next *neighbour
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		var answer any = struct{}{}
		switch o.Do {
		case "federate":
			if next, err = openNeighbour(o.Path); err != nil {
				return err
			}
		case "ask":
			if next != nil {
				next.silent.Store(0)
			}
			stop = ask(o.Front, o.Pick)
		case "beside":
			stop = honestly(o.Front)
		case "stop":
			got := stop()
			got.Smuggled = l.smuggled.Load()
			if next != nil {
				got.Silent = time.Duration(next.silent.Load()) * lookEvery
			}
			answer = got
		case "lie":
			to, err := url.Parse(o.Liar)
			if err != nil {
				return err
			}
			l.lies.Store(o.Path, proxyTo(to))
		case "truth":
			l.lies.Delete(o.Path)
		}
		if err := w.Encode(answer); err != nil {
			return err
		}
	}
	return nil
}

// ask starts the clients of the given addresses and returns a function that stops them.
func ask(front, pick string) (stop func() asked) {
	over := make(chan struct{})
	var got asked
	var wg sync.WaitGroup
	if front != "" {
		wg.Go(func() { got.Times, got.Failed = honest("http://"+front, over) })
	}
	if pick != "" {
		wg.Go(func() { got.Own = proxy(pick, over) })
	}
	return func() asked {
		close(over)
		wg.Wait()
		return got
	}
}

// honest sends requests through Envoy until stop is closed. It returns their latencies and the
// number of requests that were not served.
func honest(front string, stop <-chan struct{}) (times []time.Duration, failed int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for k := range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				body := fmt.Appendf(nil, `{"model":%q,"max_tokens":4,"messages":[{"role":"user","content":"once upon a time there were %d and %d"}]}`, vocab.Name, k, i)
				began := time.Now()
				status, _ := post(front+chat, body)
				mu.Lock()
				if times = append(times, time.Since(began)); status != http.StatusOK {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return times, failed
}

// proxy queries the program directly as a proxy does until stop is closed, and returns the
// latencies.
func proxy(pick string, stop <-chan struct{}) (times []time.Duration) {
	conn, c, err := dial(pick)
	if err != nil {
		return nil
	}
	defer conn.Close()
	for {
		select {
		case <-stop:
			return times
		case <-time.After(5 * time.Millisecond): // enough requests for a p99
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		began := time.Now()
		if s, err := c.Process(ctx); err == nil && s.Send(headersOf("GET", true)) == nil {
			if _, err := s.Recv(); err == nil {
				times = append(times, time.Since(began))
			}
			_ = s.CloseSend()
			_, _ = s.Recv() // end of the stream
		}
		cancel()
	}
}

// slowest returns the p99.
func slowest(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)*99/100]
}

// post sends a body and returns the answer's status.
func post(to string, body []byte, header ...string) (int, error) {
	q, err := http.NewRequest(http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Timeout: time.Minute}).Do(q)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}

// liar is an engine that serves requests normally and lets the test answer selected paths.
type liar struct {
	*httptest.Server
	lies     sync.Map     // http.Handler by path
	smuggled atomic.Int64 // requests that carried headers reserved for pickers
}

func openLiar(engine string) (*liar, error) {
	to, err := url.Parse("http://" + engine)
	if err != nil {
		return nil, err
	}
	l, truth := &liar{}, proxyTo(to)
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if lie, ok := l.lies.Load(q.URL.Path); ok {
			lie.(http.Handler).ServeHTTP(w, q)
			return
		}
		if q.URL.Path == sources {
			http.Error(w, "none", http.StatusNotFound)
			return
		}
		for _, name := range smuggled {
			if q.Header.Get(name) != "" {
				l.smuggled.Add(1)
			}
		}
		truth.ServeHTTP(w, q)
	}))
	return l, nil
}

func proxyTo(to *url.URL) *httputil.ReverseProxy {
	p := httputil.NewSingleHostReverseProxy(to)
	p.FlushInterval = -1
	return p
}

// people is the test's handle of the honest process.
type people struct {
	side
	t   *testing.T
	mu  sync.Mutex // one order at a time
	in  *json.Encoder
	out *json.Decoder
}

// openPeople starts an honest process, with an optional command prefix.
func openPeople(t *testing.T, before ...string) *people {
	t.Helper()
	words := append(before, os.Args[0])
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), honestEnv+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &people{t: t, in: json.NewEncoder(in), out: json.NewDecoder(out)}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the honest process: %v", err)
		}
	})
	if err := p.out.Decode(&p.side); err != nil {
		t.Fatalf("the honest process: %v", err)
	}
	return p
}

// tell sends an order and reads its answer.
func (p *people) tell(o order, answer any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.in.Encode(o); err != nil {
		p.t.Fatalf("the honest process: %v", err)
	}
	if err := p.out.Decode(answer); err != nil {
		p.t.Fatalf("the honest process: %v", err)
	}
}

// giveWay lowers the priority of this process, whose threads attack. The cost of attacking would
// otherwise add to the measured latencies. New threads inherit the priority.
func giveWay(t *testing.T) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		var id int
		if _, err := fmt.Sscan(strings.TrimSpace(task.Name()), &id); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, id, 19); err != nil && err != syscall.ESRCH {
			t.Fatal(err)
		}
	}
}
