package natsbus_test

import (
	"fmt"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
	"github.com/grapevine-epp/grapevine/cluster/natsbus"
	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestReplayToNewcomer replays a group's sealed messages to a new replica. Dead processes do not
// become members and their messages have no effect. Live processes still become members.
func TestReplayToNewcomer(t *testing.T) {
	url, sources := startServer(t, embedded.Options{}).URL(), clustertest.Sources(4)
	in := intrude(t, url)
	reader := func(name string) *clustertest.Reader {
		self := cluster.NewMember(name, "test")
		bus, err := natsbus.New(natsbus.Options{Self: self, URLs: []string{url}, Group: "test", Keys: [][]byte{keyA}})
		if err != nil {
			t.Fatal(err)
		}
		r := clustertest.NewReader(self, bus)
		t.Cleanup(func() { _ = r.End() })
		if err := r.Begin(t.Context(), sources); err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := reader("a"), reader("b")
	for _, r := range []*clustertest.Reader{a, b} {
		r.Write(100)
		_ = r.Load.Set("k", []byte("7"))
	}
	testkit.Eventually(t, func() string { return same(100, "7", a, b) })
	_ = b.End()
	testkit.Eventually(t, func() string {
		if n := len(a.Status().Peers); n != 0 {
			return fmt.Sprintf("%d peers", n)
		}
		return ""
	})
	old := in.heard()
	c := reader("c")
	c.Write(100)
	testkit.Eventually(t, func() string {
		in.say(old, func(s string, d []byte) (string, []byte) { return s, d })
		for _, r := range []*clustertest.Reader{a, c} {
			s := r.Status()
			for _, p := range s.Peers {
				if p.Name == "b" {
					t.Fatalf("%s lists a dead process as a member: %+v", r.Self().Name, p)
				}
			}
			if r.Loads.Get(b.Self().ID, "k") != "" {
				t.Fatalf("%s accepted data from a dead process", r.Self().Name)
			}
			if r == a && s.Bus.Refused["repeated"] == 0 || r == c && s.Bus.Refused["unproven"] == 0 || len(s.Peers) != 1 || s.Peers[0].State != "up" {
				return fmt.Sprintf("%s: %s, refused %v", r.Self().Name, s.Health.Line, s.Bus.Refused)
			}
		}
		return ""
	})
}
