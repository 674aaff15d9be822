package natsbus_test

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
	"github.com/grapevine-epp/grapevine/cluster/natsbus"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// nodes is a NATS cluster of three servers with TLS and JWT authentication.
type nodes struct {
	t       *testing.T
	opts    []server.Options
	servers []*server.Server
	urls    []string
	ca      string
	tenancy *tenancy
}

func threeNodes(t *testing.T) *nodes {
	t.Helper()
	cert, _ := certificate(t)
	n := &nodes{t: t, tenancy: newTenancy(), ca: file(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))}
	var routes []*url.URL
	for range 3 {
		routes = append(routes, must(url.Parse("nats://"+parts.FreeAddress(t))))
	}
	for i, r := range routes {
		o := server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: int(must(netip.ParseAddrPort(parts.FreeAddress(t))).Port()), Routes: routes,
			TLS: true, TLSTimeout: 2, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
		}
		n.tenancy.use(&o)
		o.Cluster.Name, o.Cluster.Host, o.Cluster.Port = "test", "127.0.0.1", must(net.LookupPort("tcp", r.Port()))
		n.opts = append(n.opts, o)
		n.urls = append(n.urls, fmt.Sprintf("tls://127.0.0.1:%d", o.Port))
		n.servers = append(n.servers, serve(t, o))
	}
	n.routed(0, 1, 2)
	return n
}

// routed waits until the given servers have routes to each other.
func (n *nodes) routed(servers ...int) {
	n.t.Helper()
	testkit.Eventually(n.t, func() string {
		for _, i := range servers {
			if got := n.servers[i].NumRoutes(); got < len(servers)-1 {
				return fmt.Sprintf("server %d has %d routes", i, got)
			}
		}
		return ""
	})
}

// kill stops the server with the most connected replicas and returns its index.
func (n *nodes) kill() int {
	n.t.Helper()
	i := 0
	for k, s := range n.servers {
		if s.NumClients() > n.servers[i].NumClients() {
			i = k
		}
	}
	n.t.Logf("server %d is killed with %d clients", i, n.servers[i].NumClients())
	n.servers[i].Shutdown()
	n.servers[i].WaitForShutdown()
	return i
}

// reader opens a replica that is configured with all servers.
func (n *nodes) reader(name string, sources []string) *clustertest.Reader {
	n.t.Helper()
	self := cluster.NewMember(name, "test")
	bus, err := natsbus.New(natsbus.Options{
		Self: self, URLs: n.urls, Group: "test",
		Keys: [][]byte{keyA}, CAFile: n.ca, Credentials: n.tenancy.creds(n.t),
	})
	if err != nil {
		n.t.Fatal(err)
	}
	r := clustertest.NewReader(self, bus)
	if err := r.Begin(n.t.Context(), sources); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = r.End() })
	return r
}

// same returns why the readers do not all list each other, have exactly n batches of every source,
// and have each other's load; or "".
func same(n uint64, load string, readers ...*clustertest.Reader) string {
	for _, r := range readers {
		if s := r.Status(); !s.Health.OK || len(s.Peers) != len(readers)-1 {
			return fmt.Sprintf("%s says %q", r.Self().Name, s.Health.Line)
		}
		if why := r.Missing(n); why != "" {
			return why
		}
		for _, o := range readers {
			if got := r.Loads.Get(o.Self().ID, "k"); o != r && got != load {
				return fmt.Sprintf("%s believes %q of %s, not %q", r.Self().Name, got, o.Self().Name, load)
			}
		}
	}
	return ""
}

// TestChurn shares an index of many sources over three routed servers while engines write. Servers
// are killed and restarted, and replicas join. All replicas end up with the same content and
// without losses.
func TestChurn(t *testing.T) {
	n, sources := threeNodes(t), clustertest.Sources(40)
	readers := []*clustertest.Reader{n.reader("a", sources), n.reader("b", sources), n.reader("c", sources)}
	written := uint64(0)
	churn := func(batches uint64, load string, midway func()) {
		for i := range 25 {
			if i == 12 {
				midway()
			}
			written += batches / 25
			for _, r := range readers {
				r.Write(written)
				_ = r.Load.Set("k", []byte(load))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	settle := func(what, load string) {
		t.Helper()
		t.Logf("%s: equal after %v", what, testkit.Eventually(t, func() string { return same(written, load, readers...) }))
	}
	churn(3000, "1", func() {})
	settle("3000 batches of 40 sources", "1")

	readers = append(readers, n.reader("d", sources))
	_ = readers[3].Load.Set("k", []byte("1"))
	settle("a newcomer that has read nothing", "1")
	d := readers[3].Status().Stats
	if d.SnapshotsLoaded < 10 || d.SnapshotBytes/d.SnapshotsLoaded <= 128<<10 {
		t.Errorf("new replica loaded %d snapshots of %d bytes, want several pages", d.SnapshotsLoaded, d.SnapshotBytes)
	}
	churn(50, "2", func() {})
	settle("with the newcomer", "2")

	dead := 0
	churn(500, "3", func() { dead = n.kill() })
	settle("server killed while engines write", "3")

	n.servers[dead] = serve(t, n.opts[dead])
	n.routed(0, 1, 2)
	churn(500, "4", func() { dead = n.kill() })
	settle("it is back, another killed", "4")
	for _, r := range readers {
		for reason, count := range r.Status().Bus.Refused {
			// From a new member that is not listed yet; and duplicates over two routes
			// (TestTwoWays).
			if reason != "identity" && reason != "repeated" {
				t.Errorf("%s refused %d messages: %s", r.Self().Name, count, reason)
			}
		}
	}
}
