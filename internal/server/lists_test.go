package server

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// outage is a source of endpoints that can be unreachable.
type outage struct {
	mu     sync.Mutex
	sink   discovery.Sink
	status discovery.Status
}

func newOutage() *outage {
	return &outage{status: discovery.Status{
		From: "pool default/llama", State: discovery.StateUnreadable, Problems: []discovery.Problem{{File: "pool default/llama", Message: "connection refused"}},
	}}
}

func (o *outage) Close() {}

func (o *outage) Status() discovery.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.status
}

func (o *outage) set(st discovery.Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	st.From = o.status.From
	o.status = st
}

func (o *outage) open(sink discovery.Sink) (discovery.Source, error) {
	o.sink = sink
	return o, nil
}

// provide makes the source readable.
func (o *outage) provide(f discovery.Found) {
	o.set(discovery.Status{Read: time.Now(), Endpoints: len(f.Specs)})
	o.sink.Update(f)
}

// listTest starts replicas of one group, each with its own source.
type listTest struct {
	t     *testing.T
	o     Options
	found discovery.Found
	join  []string
}

func newListTest(t *testing.T) *listTest {
	t.Helper()
	_, o := options(t, fleet.Options{Engines: 2})
	list, problems := discovery.Load(o.Endpoints)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	x := &listTest{t: t, o: o, found: discovery.Found{Names: request.Names{
		Objectives: map[string]int{"batch": -1}, Rewrites: map[string]request.Rewrite{"chat": {{Model: "a", Weight: 1}}},
	}}}
	for _, e := range list {
		a, _ := e.Addr()
		x.found.Specs = append(x.found.Specs, e.Spec(a))
	}
	x.o.Endpoints = ""
	return x
}

func (x *listTest) start(name, dir string, grouped bool) (*Server, *outage) {
	x.t.Helper()
	o, src := x.o, newOutage()
	o.Name, o.StateDir, o.Source = name, dir, src.open
	if grouped {
		at := parts.FreeAddress(x.t)
		o.Cluster = ClusterOptions{Mode: "gossip", Bind: at, StreamBind: parts.FreeAddress(x.t), Advertise: "127.0.0.1", Join: append([]string(nil), x.join...)}
		x.join = append(x.join, at)
	}
	return open(x.t, o), src
}

// uses waits until a replica uses the whole list, from an origin.
func (x *listTest) uses(s *Server, origin string) {
	x.t.Helper()
	testkit.Eventually(x.t, func() string {
		st := s.Status()
		if len(st.Endpoints) != len(x.found.Specs) || !strings.HasPrefix(st.Discovery.Origin, origin) || (origin == "") != (st.Discovery.Origin == "") {
			return st.State + ": " + st.Reason + ", origin " + st.Discovery.Origin
		}
		return ""
	})
}

// TestListOfPeers: while the source is unreadable, replicas can be replaced one after the other.
// Each new one uses the list of a peer, including objectives and rewrites, even if that peer
// received the list from another peer.
func TestListOfPeers(t *testing.T) {
	x := newListTest(t)
	a, src := x.start("a", "", true)
	src.provide(x.found)
	x.uses(a, "")
	b, _ := x.start("b", "", true)
	x.uses(b, "peer a")
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, csrc := x.start("c", "", true)
	x.uses(c, "peer b")
	c.config.mu.Lock()
	names := c.config.rules(c.config.current()).Names
	c.config.mu.Unlock()
	if names.Objectives["batch"] != -1 || names.Target("chat", 0) != "a" {
		t.Errorf("names in use: %+v, want those of the peer", names)
	}
	testkit.Eventually(t, func() string {
		st := c.Status()
		if st.State != "degraded" || st.Discovery.Read.IsZero() || !strings.Contains(st.Reason, "connection refused") {
			return "state " + st.State + ", reason " + st.Reason + ": want degraded, the age of the list and the problem of its source"
		}
		return ""
	})
	if !c.condition.ready() {
		t.Error("a replica with the list of a peer is not ready")
	}
	if got := c.lists.describe(2); !strings.Contains(got, "2 known, from peer b") {
		t.Errorf("describe() = %q, want the origin", got)
	}
	only := x.found
	only.Specs = only.Specs[:1]
	csrc.provide(only)
	x.found = only
	x.uses(c, "")
}

// TestListOfFile: a replica without peers uses the list that it stored.
func TestListOfFile(t *testing.T) {
	x := newListTest(t)
	dir := filepath.Join(t.TempDir(), "state")
	a, src := x.start("a", dir, false)
	src.provide(x.found)
	path := filepath.Join(dir, listFile)
	testkit.Await(t, "the list is stored", func() bool { _, err := os.Stat(path); return err == nil })
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, bsrc := x.start("a", dir, false)
	x.uses(b, "file ")
	// A pool that is missing for certain ends the use of the stored list.
	bsrc.set(discovery.Status{State: discovery.StateMissing, Problems: []discovery.Problem{{File: "pool", Message: "there is no such pool"}}})
	testkit.Await(t, "no endpoint is left", func() bool { return len(b.pool.Snapshot().Endpoints) == 0 })
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", `{"Format":1,"From":"another pool","Found":{"Specs":[{"Addr":"10.0.0.1:80"}]}}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l := &endpointLists{log: b.o.Log, file: path}
		l.look(&discovery.Status{From: "pool default/llama", State: discovery.StateUnreadable}, nil, time.Minute)
		if l.used != nil {
			t.Errorf("the list %q is used", text)
		}
	}
	if _, err := readListFile(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("readListFile() of a missing file: %v", err)
	}
}

// TestMissingSource: a source that is missing keeps its list until it was missing for missingGrace, without a break.
func TestMissingSource(t *testing.T) {
	l := &endpointLists{log: slog.New(slog.DiscardHandler)}
	missing, used := &discovery.Status{State: discovery.StateMissing}, &discovery.Record{Found: discovery.Found{Specs: make([]endpoint.Spec, 1)}}
	l.look(missing, used, time.Minute)
	if l.used != nil || l.missingSince.IsZero() {
		t.Errorf("list %v in use, missing since %v, want the former list and a time", l.used, l.missingSince)
	}
	l.look(&discovery.Status{State: discovery.StateUnreadable}, used, time.Minute)
	if !l.missingSince.IsZero() {
		t.Errorf("missing since %v although it was there", l.missingSince)
	}
}
