package remotecluster

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/internal/lab/wan"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestForgedFilterOverTheWire: a member that announces false prefixes over a real link gets some
// requests, each with local endpoints as fallback and none refused, until it is detected.
func TestForgedFilterOverTheWire(t *testing.T) {
	dir := t.TempDir()
	if err := wan.Authorize(dir, "a", "b"); err != nil {
		t.Fatal(err)
	}
	at := func(file string) string { return filepath.Join(dir, file) }
	join := func(self, other string, addresses ...string) *link.Link {
		t.Helper()
		all := []string{"ns/*"}
		l, err := link.Open(link.Options{Replica: self + "-0", Config: &link.Config{
			Cluster: self, Listen: "127.0.0.1:0", CertFile: at(self + ".crt"), KeyFile: at(self + ".key"), CAFile: at(wan.CAFile), SecretFile: at(wan.SecretFile),
			Lease: time.Minute, Peers: []link.PeerConfig{{Name: other, Addresses: addresses, Export: all, Accept: all}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	liar := join("b", "a")
	for i := range 40 {
		r := prompt(8000, fmt.Sprint("forged", i))
		liar.Hot(poolKey).Touch(liar.View().Secret.Chain(r.Target, r.Chunks.Bytes, nil))
	}
	claim := *other("b", nil).Export
	liar.SetExports([]federation.Export{claim})
	here := join("a", "b", liar.Addr().String())
	testkit.Eventually(t, func() string {
		for i := range 40 {
			r := prompt(8000, fmt.Sprint("forged", i))
			keys := here.View().Secret.Chain(r.Target, r.Chunks.Bytes, nil)
			if list := here.View().Pool(poolKey, nil); len(list) != 1 || list[0].Filter.Run(keys) != len(keys) {
				return fmt.Sprintf("prompt %d is not told: %+v", i, *here.Status())
			}
		}
		return ""
	})
	w := newWorld(t, nil)
	w.now = time.Now()
	w.view = here.View()
	w.fleet.Update(w.view)
	away := 0
	for i := range 40 {
		d, why, err := w.place(prompt(8000, fmt.Sprint("forged", i)))
		if err != nil {
			t.Fatalf("prompt %d: %v", i, err)
		}
		o := request.Outcome{At: w.now, Status: 200, Complete: true, Served: d.Endpoints[0]}
		if why["b"] == "chosen" {
			away++
			o.Usage = request.Usage{Seen: true, CachedSeen: true}
			if len(d.Endpoints) < 2 || !strings.HasPrefix(d.Endpoints[1], "10.") {
				t.Errorf("prompt %d goes to %v without a local fallback", i, d.Endpoints)
			}
		}
		d.Done(o)
	}
	if away == 0 || away > 16 {
		t.Errorf("%d of 40 prompts went to the cluster with false announcements, want 1 to 16", away)
	}
}

// TestMisreportingCluster: a cluster that announces cheap prices but answers late gets some requests. Then it is
// priced above its announcement for a while.
func TestMisreportingCluster(t *testing.T) {
	for name, lie := range map[string]func(*federation.Remote){
		"is idle":               func(*federation.Remote) {},
		"has a million engines": func(r *federation.Remote) { r.Ready[0].Count = 1 << 20 },
		"has endless caches":    func(r *federation.Remote) { r.Capacity = federation.Capacity{Requests: 1 << 40, KVTokens: 1 << 40} },
		"takes no time":         func(r *federation.Remote) { r.Price = federation.Price{PerToken: 1e-12, Step: 1e-12} },
		"is next door":          func(r *federation.Remote) { r.RTT = time.Nanosecond },
	} {
		w := newWorld(t, nil)
		away := 0
		for i := range 40 {
			w.now = w.now.Add(100 * time.Millisecond)
			w.tell(other("b", func(r *federation.Remote) {
				r.ReceivedAt, r.Until = w.now, w.now.Add(time.Second)
				lie(r)
			}))
			w.busy(5)
			d, _, err := w.place(prompt(500, fmt.Sprint("lie", i)))
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(d.Endpoints[0], "10.") {
				continue
			}
			if away++; len(d.Endpoints) < 2 {
				t.Errorf("%s: %v without a local fallback", name, d.Endpoints)
			}
			w.finish(d, 5*time.Second)
		}
		if away == 0 || away > 8 {
			t.Errorf("%s: %d of 40 requests went to a cluster that answers 5 s late, want 1 to 8", name, away)
		}
	}
}
