//go:build oracle

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/share"
)

// The oracle compares the replicas' view of engine caches with the true contents. Engines use
// libzmq and log every change of their caches. The test queries the replicas' matches continuously.
// Each answer is current, was correct some time ago, or was never correct. A switchable link
// between replicas and engines drops traffic without an error.
const (
	oracleReplicas, oracleEngines = 3, 6
	oracleProbes, oracleBlocks    = 4, 24
)

var restarts = flag.Int("oracle.restarts", 1, "how often two engines start again")

// oracle holds the engines, their true contents and the replicas.
type oracle struct {
	t        *testing.T
	dir      string
	script   *parts.Script
	engines  []struct{ HTTP, Events, Replay int }
	replicas []*Server
	links    []*reach // by replica
	join     []string
	made     int

	mu    sync.Mutex
	truth map[[2]int]cachedBlocks // by engine and probe
}

// reach is the network path from one replica to the event ports of all engines.
type reach struct {
	silent    atomic.Bool
	listeners []net.Listener
	path      string // of the replica's list of endpoints
}

// through returns a port that forwards to another port. When the link is silent, it drops all data
// without closing connections.
func (l *reach) through(t *testing.T, port int) int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.listeners = append(l.listeners, ln)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go l.carry(c, port)
		}
	}()
	return ln.Addr().(*net.TCPAddr).Port
}

func (l *reach) carry(c net.Conn, port int) {
	defer c.Close()
	if l.silent.Load() {
		for l.silent.Load() { // a connection that is never answered
			time.Sleep(20 * time.Millisecond)
		}
		return
	}
	to, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return
	}
	defer to.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, to}, {to, c}} {
		both.Go(func() {
			b, lost := make([]byte, 64<<10), false
			for {
				n, err := way[0].Read(b)
				if lost = lost || l.silent.Load(); lost {
					if err != nil || !l.silent.Load() {
						break // the stream has lost bytes, so it must be closed
					}
					continue
				}
				if _, werr := way[1].Write(b[:n]); err != nil || werr != nil {
					break
				}
			}
			_ = c.Close()
			_ = to.Close()
		})
	}
	both.Wait()
}

func openOracle(t *testing.T) *oracle {
	o := &oracle{t: t, dir: t.TempDir(), truth: map[[2]int]cachedBlocks{}}
	if err := vocab.New().WriteModel(filepath.Join(o.dir, "model")); err != nil {
		t.Fatal(err)
	}
	o.script = parts.Start(t, "testdata/engines.py", fmt.Sprint(oracleEngines))
	if err := json.Unmarshal([]byte(o.script.Line()), &o.engines); err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		o.listen()
	}()
	t.Cleanup(func() {
		o.script.Send("end")
		<-heard
	})
	for range oracleReplicas {
		o.add()
	}
	t.Cleanup(func() {
		for _, s := range o.replicas {
			o.stop(s)
		}
	})
	return o
}

// listen records the true contents from the engines' logs.
func (o *oracle) listen() {
	for {
		var e, p int
		var c change
		var at float64
		if _, err := fmt.Sscan(o.script.Line(), &e, &p, &c.blocks, &c.life, &c.next, &at); err != nil {
			return
		}
		c.at = time.UnixMicro(int64(at * 1e6))
		o.mu.Lock()
		k := [2]int{e, p}
		o.truth[k] = append(o.truth[k], c)
		o.mu.Unlock()
	}
}

// endpoints writes a replica's list: all engines, their streams through its link.
func (o *oracle) endpoints(l *reach, all bool) {
	text := "endpoints:\n"
	if !all {
		text = "endpoints: []\n"
	}
	for i, e := range o.engines {
		if !all {
			break
		}
		text += fmt.Sprintf("- address: 127.0.0.1\n  port: %d\n  name: engine-%d\n  events: {port: %d, replayPort: %d}\n",
			e.HTTP, i, l.listeners[2*i].Addr().(*net.TCPAddr).Port, l.listeners[2*i+1].Addr().(*net.TCPAddr).Port)
	}
	if err := os.WriteFile(l.path, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

func (o *oracle) add() {
	o.t.Helper()
	l := &reach{}
	for _, e := range o.engines {
		l.through(o.t, e.Events)
		l.through(o.t, e.Replay)
	}
	o.made++
	l.path = filepath.Join(o.dir, fmt.Sprintf("endpoints-%d.yaml", o.made))
	o.endpoints(l, true)
	at := parts.FreeAddress(o.t)
	s, err := Open(Options{
		Name: fmt.Sprintf("replica-%d", o.made), Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Endpoints: l.path, PlaceUnknown: true,
		Models: []ModelOptions{{Name: vocab.Name, Path: filepath.Join(o.dir, "model")}},
		Cluster: ClusterOptions{
			Mode: "gossip", Share: "partitioned", Keys: [][]byte{bytes.Repeat([]byte{9}, 32)}, Bind: at, StreamBind: "127.0.0.1:0", Join: o.join,
		},
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.join, o.links, o.replicas = append(o.join, at), append(o.links, l), append(o.replicas, s)
}

func (o *oracle) stop(s *Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Stop(ctx)
}

// answers counts the answers of one scenario.
type answers struct {
	all, now, never, behind int             // behind: reported as exact, but over a second older than reported
	half                    int             // in the middle of a batch
	ages                    []time.Duration // of answers that were true before
	worst                   time.Duration   // age of the oldest answer reported as exact
}

// ask queries every replica for every probe, repeatedly, for the duration d.
func (o *oracle) ask(d time.Duration) *answers {
	a := &answers{}
	var asked []told
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, s := range o.replicas {
			for probe := range oracleProbes {
				asked = append(asked, o.once(s, probe)...)
			}
		}
	}
	time.Sleep(300 * time.Millisecond) // for the truth to be written
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range asked {
		o.judge(a, r)
	}
	return a
}

// told is a replica's answer about one engine.
type told struct {
	engine, probe int
	known         string
	shown         time.Duration // staleness that the replica reports
	claim
}

// places returns the replica's position in each engine's log.
func (o *oracle) places(s *Server) (at [oracleEngines]place) {
	for i, e := range o.engines {
		p := s.share.Position(share.SourceName(fmt.Sprint("127.0.0.1:", e.HTTP), 0))
		at[i] = place{p.Inc, p.Next}
	}
	return at
}

func (o *oracle) once(s *Server, probe int) (out []told) {
	ids := make([]int, 0, oracleBlocks*16+1)
	for b := range oracleBlocks {
		for j := range 16 {
			ids = append(ids, 32+(probe*31+b*7+j*(probe+3))%90)
		}
	}
	body, _ := json.Marshal(map[string]any{"model": vocab.Name, "prompt": append(ids, 1), "max_tokens": 1})
	before, from := o.places(s), time.Now()
	resp, err := http.Post("http://"+s.AdminAddr().String()+"/debug/explain?path=/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	to, after := time.Now(), o.places(s)
	var e Explained
	if err := json.Unmarshal(text, &e); err != nil {
		o.t.Fatalf("%v: %s", err, text)
	}
	for _, c := range e.Candidates {
		for i := range o.engines {
			if strings.HasSuffix(c.Endpoint, fmt.Sprint(":", o.engines[i].HTTP)) {
				shown := time.Duration(e.AgeMS[c.Endpoint] * float64(time.Millisecond))
				out = append(out, told{i, probe, e.Knowledge[c.Endpoint], shown, claim{c.Blocks, before[i], after[i], from, to}})
			}
		}
	}
	return out
}

// judge determines when an answer was correct. An answer reported as exact must match a state that
// the replica has reached. Other answers may match any past state.
func (o *oracle) judge(a *answers, r told) {
	h, exact := o.truth[[2]int{r.engine, r.probe}], r.known == "exact"
	c := r.claim
	if !exact {
		c = c.whole(h)
	}
	a.all++
	age, half, ever := h.age(c)
	switch {
	case !ever:
		a.never++
		o.t.Logf("engine %d, probe %d: %d blocks, %s, between %v and %v, never true", r.engine, r.probe, c.blocks, r.known, c.before, c.after)
		return
	case age == 0:
		a.now++
	default:
		a.ages = append(a.ages, age)
	}
	if half {
		a.half++
	}
	if exact {
		a.worst = max(a.worst, age)
		if age > time.Second+min(r.shown, time.Second) {
			a.behind++
		}
	}
}

func (a *answers) String() string {
	sort.Slice(a.ages, func(i, j int) bool { return a.ages[i] < a.ages[j] })
	at := func(q float64) time.Duration {
		i := int(q*float64(a.all)) - (a.all - len(a.ages))
		if i < 0 || len(a.ages) == 0 {
			return 0
		}
		return a.ages[min(i, len(a.ages)-1)].Round(time.Millisecond)
	}
	return fmt.Sprintf("| %d | %.2f%% | %v | %v | %v | %d | %d | %d |",
		a.all, 100*float64(a.now)/float64(max(a.all, 1)), at(.99), at(.999), a.worst.Round(time.Millisecond), a.behind, a.half, a.never)
}

// known waits until all replicas report every engine as known.
func (o *oracle) known() {
	o.t.Helper()
	last := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		last = ""
		for _, s := range o.replicas {
			st := s.Status()
			if len(st.Endpoints) != oracleEngines {
				last = fmt.Sprintf("%s has %d endpoints", st.Name, len(st.Endpoints))
			}
			for _, e := range st.Endpoints {
				if e.Knowledge != "exact" {
					last = fmt.Sprintf("%s: %s is %s (%s); %s", st.Name, e.Address, e.Knowledge, e.Reason, st.Cluster.Line)
				}
			}
		}
		if last == "" {
			return
		}
	}
	o.t.Fatal(last)
}

// TestOracle prints the staleness of the replicas' answers during and after each fault.
func TestOracle(t *testing.T) {
	o := openOracle(t)
	o.known()
	show := func(name string, limit time.Duration, a *answers) {
		t.Helper()
		t.Logf("| %s %s", name, a)
		if a.all == 0 || a.never > 0 || a.worst > limit {
			t.Errorf("%s: exact but %v old (limit %v), %d never true, of %d", name, a.worst, limit, a.never, a.all)
		}
	}
	const soon, silent = time.Second, 3500 * time.Millisecond // a machine that is busy is half a second late
	t.Log("| scenario | answers | true now | p99 age | p99.9 age | oldest said exact | said exact, older than 1 s | in the middle of a batch | never true |")
	show("nothing happens", soon, o.ask(5*time.Second))
	for _, s := range o.replicas {
		if err := s.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	show("all reload", soon, o.ask(3*time.Second))
	o.flap()
	show("all endpoints leave the lists for two seconds: after that", soon, o.ask(3*time.Second))
	o.links[0].silent.Store(true)
	show("the way of one replica to all event ports lets nothing through", silent, o.ask(15*time.Second))
	o.links[0].silent.Store(false)
	show("and it heals", silent, o.ask(8*time.Second))
	o.stop(o.replicas[0])
	o.replicas, o.links = o.replicas[1:], o.links[1:]
	show("one replica dies", silent, o.ask(6*time.Second))
	o.add()
	o.known()
	show("another comes", soon, o.ask(3*time.Second))
	for range *restarts {
		for e := range o.engines[:2] {
			o.script.Send(fmt.Sprint("restart ", e))
		}
		show("two engines start again", silent, o.ask(5*time.Second))
	}
	o.script.Send("rest")
	time.Sleep(2 * time.Second)
	at := o.ask(2 * time.Second)
	show("at rest", 0, at)
	if at.now != at.all {
		t.Errorf("at rest %d of %d answers are not true", at.all-at.now, at.all)
	}
}

// flap takes all endpoints out of the lists of all replicas for two seconds.
func (o *oracle) flap() {
	set := func(all bool) {
		for _, l := range o.links {
			o.endpoints(l, all)
		}
		n := 0
		if all {
			n = oracleEngines
		}
		for _, s := range o.replicas {
			for end := time.Now().Add(time.Minute); len(s.Status().Endpoints) != n; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					o.t.Fatalf("%d endpoints, want %d", len(s.Status().Endpoints), n)
				}
			}
		}
	}
	set(false)
	time.Sleep(2 * time.Second)
	set(true)
}
