//go:build page

package page

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// templates is the vocabulary of simulated engines, with a chat template that can change.
type templates struct {
	*vocab.Vocabulary
	other atomic.Bool
}

// Render implements sim.Tokenizer.
func (v *templates) Render(dst, body []byte) ([]byte, error) {
	if v.other.Load() {
		dst = append(dst, "A system prompt that only this template has. "...)
	}
	return v.Vocabulary.Render(dst, body)
}

// otherTemplate has one of four engines render prompts by another chat template.
func otherTemplate(t *testing.T) (*stand, func()) {
	v := &templates{Vocabulary: vocab.New()}
	s := openFleet(t, fleet.Options{Engines: 4, Engine: sim.Options{Speed: 20}, Customize: func(i int, o *sim.Options) {
		if i == 0 {
			o.Tokenizer = v
		}
	}})
	s.keepAsking(t, "", 8)
	return s, func() { v.other.Store(true) }
}

// closedEvents closes the event port of one engine to the replica, as a network policy does.
func closedEvents(t *testing.T) (*stand, func()) {
	var gates []*gate
	s, _ := serveFleet(t, fleet.Options{Engines: 2, Engine: sim.Options{Speed: 20, Events: &sim.EventOptions{}}, Describe: func(_ int, e *fleet.Endpoint) {
		for _, port := range []*int{&e.Events.Port, &e.Events.ReplayPort} {
			g := openGate(t, net.JoinHostPort(e.Address, fmt.Sprint(*port)))
			gates = append(gates, g)
			*port = g.Addr().(*net.TCPAddr).Port
		}
	}})
	return s, func() {
		for _, g := range gates[:2] {
			g.shut()
		}
	}
}

// gate forwards connections to an address until it is shut.
type gate struct {
	net.Listener
	conns chan net.Conn
}

func openGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{l, make(chan net.Conn, 1000)}
	t.Cleanup(g.shut)
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			g.conns <- c
			g.conns <- d
			go func() { _, _ = io.Copy(c, d); c.Close() }()
			go func() { _, _ = io.Copy(d, c); d.Close() }()
		}
	}()
	return g
}

func (g *gate) shut() {
	g.Close()
	for {
		select {
		case c := <-g.conns:
			c.Close()
		default:
			return
		}
	}
}

// awayAPIServer stops the API server from which a replica reads its endpoints.
func awayAPIServer(t *testing.T) (*stand, func()) {
	engines, err := fleet.Open(fleet.Options{Engines: 1, Engine: sim.Options{Speed: 20}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engines.Close() })
	host, port, _ := net.SplitHostPort(engines.Engines()[0].Addr())
	pod := fmt.Sprintf(`{"metadata":{"name":"engine-0","namespace":"prod","uid":"u","resourceVersion":"1","labels":{"app":"vllm"}},
		"spec":{"containers":[{"name":"engine"}]},"status":{"podIP":%q,"conditions":[{"type":"Ready","status":"True"}]}}`, host)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/namespaces/prod/pods"):
			http.NotFound(w, r)
		case r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1"},"items":[%s]}`, pod)
		}
	}))
	away := func() {
		api.CloseClientConnections()
		api.Config.Close()
	}
	t.Cleanup(away)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, config, fmt.Sprintf("current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a, namespace: prod}}]\nclusters: [{name: a, cluster: {server: %q}}]\nusers: [{name: a, user: {token: a}}]\n", api.URL))
	s := &stand{engines: engines, admin: parts.FreeAddress(t)}
	s.serve(t, "--kubeconfig", config, "--endpoint-selector", "app=vllm", "--endpoint-target-ports", port, "--pool-namespace", "prod")
	s.browse(t)
	return s, away
}

// key writes a key of a group, all of whose bytes are b.
func key(t *testing.T, b byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	write(t, file, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), 32)))+"\n")
	return file
}

// openGroup starts three replicas that share by gossip, waits until they have joined, and opens the page
// of the last one.
func openGroup(t *testing.T) (replicas []*stand, last []string) {
	t.Helper()
	const n = 3
	endpoints := filepath.Join(t.TempDir(), "endpoints.yaml")
	engines, err := fleet.Open(fleet.Options{Engines: 2, Engine: sim.Options{Speed: 20}, EndpointsFile: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engines.Close() })
	var join []string
	for range n {
		join = append(join, parts.FreeAddress(t))
	}
	shared := key(t, 'k')
	for i := range n {
		s := &stand{engines: engines, admin: parts.FreeAddress(t)}
		last = []string{"--endpoints", endpoints, "--name", fmt.Sprint("replica-", i), "--cluster", "gossip", "--cluster-bind", join[i],
			"--cluster-stream-bind", parts.FreeAddress(t), "--cluster-join", strings.Join(join, ","), "--cluster-key-file", shared}
		s.serve(t, last...)
		replicas = append(replicas, s)
	}
	for _, s := range replicas {
		testkit.Await(t, "the replicas have joined", func() bool {
			st := s.status(t)
			return st.Cluster.State == "joined" && len(st.Members) == n
		})
	}
	replicas[n-1].browse(t)
	return replicas, last
}

// wrongKey restarts one replica of three with another key.
func wrongKey(t *testing.T) (*stand, func()) {
	replicas, args := openGroup(t)
	s := replicas[len(replicas)-1]
	args[len(args)-1] = key(t, 'x')
	return s, func() {
		s.restarted = true
		s.kill()
		s.serve(t, args...)
	}
}

// skewedClock moves the clock of one replica of three by two minutes, and shows the page of another.
func skewedClock(t *testing.T) (*stand, func()) {
	replicas, _ := openGroup(t)
	return replicas[len(replicas)-1], func() { moveClock(t, replicas[0].pid, 2*time.Minute) }
}

// lostNATS stops the NATS server of a replica.
func lostNATS(t *testing.T) (*stand, func()) {
	bus, err := embedded.Start(embedded.Options{Name: "bus"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Stop)
	replicas := make([]*stand, 2)
	for i := range replicas {
		replicas[i], _ = serveFleet(t, fleet.Options{Engines: 1, Engine: sim.Options{Speed: 20}}, "--name", fmt.Sprint("replica-", i), "--cluster", "nats", "--nats", bus.URL())
	}
	testkit.Await(t, "the replicas have joined", func() bool { return replicas[1].status(t).Cluster.State == "joined" })
	return replicas[1], bus.Stop
}

// littleMemory restarts a replica with a memory limit that leaves little room. A fresh process needs
// about a fifth less than one that has run for a while.
func littleMemory(t *testing.T) (*stand, func()) {
	s, endpoints := serve(t)
	return s, func() {
		testkit.Await(t, "the needed memory is measured", func() bool { return s.metric(t, "grapevine_memory_needed_bytes", "") != "" })
		needed, err := strconv.ParseFloat(s.metric(t, "grapevine_memory_needed_bytes", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		s.restarted = true
		s.kill()
		s.environment = []string{fmt.Sprintf("GOMEMLIMIT=%.0fB", 0.95*needed)}
		s.serve(t, "--endpoints", endpoints)
	}
}
