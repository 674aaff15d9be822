package link_test

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// recorder reaches NATS, has no key, and records all messages.
type recorder struct {
	conn *nats.Conn
	mu   sync.Mutex
	all  []*nats.Msg
}

func (r *recorder) take() (all []*nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, r.all = r.all, nil
	return all
}

func (r *recorder) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// TestRecordings: replayed messages of a federation over NATS are not accepted by later processes
// with the same names, neither on the original subject nor on the later processes' subjects. They
// create no session for asks to other processes, and messages of live replicas still arrive.
func TestRecordings(t *testing.T) {
	ca := fixture(t)
	server, err := embedded.Start(embedded.Options{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	config := func(cluster, peer string) *link.Config {
		p := trusted(peer)
		p.KeyFile = filepath.Join(ca.dir, "pair")
		return &link.Config{
			Cluster: cluster, SecretFile: filepath.Join(ca.dir, "secret"), Lease: 5 * time.Second,
			NATS: &link.NATSConfig{URLs: []string{server.URL()}}, Peers: []link.PeerConfig{p},
		}
	}
	rec := &recorder{}
	if rec.conn, err = nats.Connect(server.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rec.conn.Close)
	if _, err = rec.conn.Subscribe(">", func(m *nats.Msg) {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.all = append(rec.all, m)
	}); err != nil {
		t.Fatal(err)
	}
	if err := rec.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	const name = "b-0"
	a1 := exporter(t, config("a", "b"), "a-0")
	b1 := open(t, config("b", "a"), name)
	await(t, "held there", b1, holds)
	testkit.Await(t, "some messages are recorded", func() bool { return rec.len() >= 6 }) // both ask on each beat
	if err := a1.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b1.Close(); err != nil {
		t.Fatal(err)
	}
	old := rec.take()
	a2 := exporter(t, config("a", "b"), "a-0")
	b2 := open(t, config("b", "a"), name)
	await(t, "held there again", b2, holds)
	own := map[string]string{} // subject of each live process
	for _, m := range rec.take() {
		if cluster, _, ok := strings.Cut(strings.TrimPrefix(m.Subject, "grapevine.federation."), ".at."); ok {
			own[cluster] = m.Subject
		}
	}
	if len(own) != 2 {
		t.Fatalf("subjects %v", own)
	}
	forged := uint64(0)
	for _, m := range old {
		cluster, process, ok := strings.Cut(strings.TrimPrefix(m.Subject, "grapevine.federation."), ".at.")
		if ok && strings.HasSuffix(own[cluster], process) {
			t.Errorf("%s is the subject of two processes", m.Subject)
		}
		if err := rec.conn.Publish(m.Subject, m.Data); err != nil {
			t.Fatal(err)
		}
		if ok {
			forged++
			if err := rec.conn.Publish(own[cluster], m.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, "what was said to others is not opened", b2, func(v *federation.View) bool {
		if !holds(v) {
			t.Fatalf("silent: %+v", v.Clusters[0])
		}
		return a2.Status().Refused["key"]+b2.Status().Refused["key"] == forged
	})
	if n := a2.Status().Clusters[0].Sessions; n > 2 {
		t.Errorf("%d sessions, want at most a live and a doubted one", n)
	}
}
