package server

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
	"github.com/grapevine-epp/grapevine/picker/request"
)

var fedPool = federation.PoolKey{Namespace: "default", Name: "llama"}

// federated adds a replica to a federation of clusters a and b over NATS.
func federated(t *testing.T, o *Options, url, cluster, peer string) {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte("MDEyMzQ1Njc4OWFiY2RlZg==\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := []string{"default/*"}
	o.Federation.Link = &link.Config{
		Cluster: cluster, SecretFile: key, Lease: 20 * time.Second, // the machine may be slow
		NATS:    &link.NATSConfig{URLs: []string{url}},
		Exports: []link.ExportConfig{{Pool: fedPool.String(), Gateways: []link.AddressConfig{{Address: "127.0.0.1:1"}}}},
		Peers:   []link.PeerConfig{{Name: peer, KeyFile: key, Export: all, Accept: all}},
	}
	o.Federation.Use = remotecluster.Options{Self: cluster, Pool: fedPool}
}

// TestFederation: a prefix that one replica of a cluster serves becomes hot at the other replicas
// of its group and at another cluster. Either cluster may dial. A draining replica redirects its
// importers to other replicas. The last one withdraws the pool.
func TestFederation(t *testing.T) {
	server, err := embedded.Start(embedded.Options{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	_, o := options(t, fleet.Options{Engines: 1})
	var group []*Server
	var join []string
	for _, name := range []string{"a-0", "a-1"} {
		o := o
		o.Name = name
		bind := parts.FreeAddress(t)
		o.Cluster = ClusterOptions{Mode: "gossip", Label: "test", Bind: bind, StreamBind: parts.FreeAddress(t), Keys: [][]byte{make([]byte, 32)}, Share: "mesh", Join: join, TCPOnly: true}
		join = append(join, bind)
		federated(t, &o, server.URL(), "a", "b")
		group = append(group, open(t, o))
	}
	_, far := options(t, fleet.Options{Engines: 1})
	far.Name = "b-0"
	federated(t, &far, server.URL(), "b", "a")
	b := open(t, far)
	cluster := func() link.ClusterStatus { return b.Status().Federation.Clusters[0] }
	remote := func() *link.PoolStatus {
		if c := cluster(); len(c.Pools) == 1 && c.Pools[0].State == federation.Live.String() {
			return &c.Pools[0]
		}
		return nil
	}
	testkit.Await(t, "b hears a", func() bool { p := remote(); return p != nil && p.Endpoints == 1 })
	testkit.Await(t, "the group is whole", func() bool { return len(group[0].node.Status().Peers) == 1 && len(group[1].node.Status().Peers) == 1 })

	r := &request.Request{ID: "r", Headers: http.Header{}, Path: "/v1/completions", Body: []byte(`{"model":"` + vocab.Name + `","prompt":"` + strings.Repeat("all replicas know the same ", 60) + `"}`)}
	if err := request.Parse(r); err != nil {
		t.Fatal(err)
	}
	d, err := group[0].chooser.Choose(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Done(request.Outcome{})
	blocks := len(r.Chunks.Bytes) / filter.ChunkBytes
	if blocks < 4 {
		t.Fatalf("%d blocks", blocks)
	}
	for _, s := range group {
		testkit.Await(t, s.o.Name+" knows what is hot", func() bool { return s.Status().Federation.Exports[0].Hot == blocks })
	}
	testkit.Await(t, "b finds it there", func() bool { p := remote(); return p != nil && p.Filter == "" && p.Blocks == blocks })

	first := cluster().Replica
	for _, s := range group {
		if s.o.Name == first {
			s.Drain(t.Context())
		}
	}
	testkit.Await(t, "another replica of a answers", func() bool {
		if remote() == nil {
			t.Fatalf("silent although one of two replicas lives: %+v", *b.Status().Federation)
		}
		return cluster().Replica != first
	})
	testkit.Await(t, "and knows the same", func() bool { p := remote(); return p != nil && p.Filter == "" && p.Blocks == blocks })

	for _, s := range group {
		s.Drain(t.Context())
	}
	testkit.Await(t, "the last replica of a withdraws the pool", func() bool {
		c := cluster()
		return len(c.Pools) == 1 && c.Pools[0].State == federation.Draining.String()
	})
}
