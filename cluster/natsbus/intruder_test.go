package natsbus_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/natsbus"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// intruder has valid credentials for the NATS account but not the group's key. It records all
// messages of the group.
type intruder struct {
	conn *nats.Conn
	mu   sync.Mutex
	msgs []*nats.Msg
}

func intrude(t *testing.T, url string, opts ...nats.Option) *intruder {
	t.Helper()
	conn, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	in := &intruder{conn: conn}
	if _, err := conn.Subscribe("grapevine.test.>", func(m *nats.Msg) {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.msgs = append(in.msgs, m)
	}); err != nil {
		t.Fatal(err)
	}
	return in
}

// heard returns the messages recorded so far.
func (in *intruder) heard() []*nats.Msg {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]*nats.Msg(nil), in.msgs...)
}

// say publishes each message as modified by change.
func (in *intruder) say(msgs []*nats.Msg, change func(subject string, data []byte) (string, []byte)) {
	for _, m := range msgs {
		subject, data := change(m.Subject, bytes.Clone(m.Data))
		_ = in.conn.Publish(subject, data)
	}
	_ = in.conn.Flush()
}

// TestIntruder: messages of a client that may publish on all of the group's subjects are rejected
// and counted. No replica's members, content or gauges change.
func TestIntruder(t *testing.T) {
	ours := newTenancy()
	opt := server.Options{MaxPayload: 4 << 20}
	ours.use(&opt)
	url, sources := serve(t, opt).ClientURL(), clustertest.Sources(4)
	reader := func(self cluster.Member, key []byte) *clustertest.Reader {
		o := natsbus.Options{Self: self, URLs: []string{url}, Group: "test", Credentials: ours.creds(t)}
		if key != nil {
			o.Keys = [][]byte{key}
		}
		bus, err := natsbus.New(o)
		if err != nil {
			t.Fatal(err)
		}
		r := clustertest.NewReader(self, bus)
		t.Cleanup(func() { _ = r.End() })
		return r
	}
	in := intrude(t, url, nats.UserCredentials(ours.creds(t)))
	a, b, c := reader(cluster.NewMember("a", "test"), keyA), reader(cluster.NewMember("b", "test"), keyA), reader(cluster.NewMember("c", "test"), keyA)
	for _, r := range []*clustertest.Reader{a, b, c} {
		if err := r.Begin(t.Context(), sources); err != nil {
			t.Fatal(err)
		}
	}
	write := func(n uint64, load string, rs ...*clustertest.Reader) {
		for _, r := range rs {
			r.Write(n)
			_ = r.Load.Set("k", []byte(load))
		}
		testkit.Eventually(t, func() string { return same(n, load, rs...) })
	}
	write(100, "7", a, b, c)
	write(200, "8", a, b, c)
	if err := c.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = c.End()
	testkit.Eventually(t, func() string {
		if n := len(a.Status().Peers) + len(b.Status().Peers); n != 2 {
			return fmt.Sprintf("%d peers", n)
		}
		return ""
	})
	write(300, "9", a, b)

	old := in.heard()
	for what, try := range map[string]func(){
		"garbage and oversized messages": func() {
			in.say(old[:3], func(s string, _ []byte) (string, []byte) { return s, nil })
			in.say(old[:3], func(s string, _ []byte) (string, []byte) { return s, bytes.Repeat([]byte{0xff}, 2*group.MaxFrame) })
			in.say(old[:3], func(s string, b []byte) (string, []byte) { return s, append(b, make([]byte, group.MaxFrame)...) })
		},
		"changed bits": func() {
			in.say(old, func(s string, b []byte) (string, []byte) { b[len(b)/2] ^= 1; return s, b })
			in.say(old, func(s string, b []byte) (string, []byte) { b[len(b)-1] ^= 1; return s, b })
		},
		"replays, also of one who is dead": func() {
			in.say(old, func(s string, b []byte) (string, []byte) { return s, b })
		},
		"replays elsewhere": func() {
			in.say(old, func(_ string, b []byte) (string, []byte) { return "grapevine.test.all", b })
			in.say(old, func(_ string, b []byte) (string, []byte) { return "grapevine.test.hb", b })
		},
		"a forged origin, without and with another key": func() {
			for _, key := range [][]byte{nil, keyB} {
				forger := reader(a.Self(), key)
				if err := forger.Begin(t.Context(), sources); err != nil {
					t.Fatal(err)
				}
				forger.Write(5000)
				_ = forger.Load.Set("k", []byte("666"))
				time.Sleep(400 * time.Millisecond)
				_ = forger.Drain(t.Context()) // publishes a goodbye in a's name
				_ = forger.End()
			}
		},
	} {
		try()
		time.Sleep(100 * time.Millisecond)
		testkit.Eventually(t, func() string {
			if why := same(300, "9", a, b); why != "" {
				return "after " + what + ": " + why
			}
			return ""
		})
	}
	testkit.Eventually(t, func() string {
		for _, r := range []*clustertest.Reader{a, b} {
			for _, reason := range []string{"key", "plaintext", "frame", "repeated"} {
				if n := r.Status().Bus.Refused; n[reason] == 0 {
					return fmt.Sprintf("%s: refused %v", r.Self().Name, n)
				}
			}
		}
		return ""
	})
	write(400, "10", a, b)
}
