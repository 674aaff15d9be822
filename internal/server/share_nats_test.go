package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// routedNATS starts three nats-servers with routes to each other.
func routedNATS(t *testing.T) (servers []*embedded.Server, urls []string) {
	t.Helper()
	var routes []string
	for range 3 {
		routes = append(routes, "nats://"+parts.FreeAddress(t))
	}
	for i, r := range routes {
		s, err := embedded.Start(embedded.Options{
			Name: fmt.Sprintf("n%d", i), ClusterName: "test", ClusterBind: strings.TrimPrefix(r, "nats://"), Routes: routes,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		servers, urls = append(servers, s), append(urls, s.URL())
	}
	return servers, urls
}

// TestNATSAgrees shares real engines' events over a NATS cluster. A new replica gets blocks that no
// engine can replay any more, and the loss of a server loses nothing.
func TestNATSAgrees(t *testing.T) {
	for _, share := range []string{"mesh", "partitioned"} {
		t.Run(share, func(t *testing.T) {
			servers, urls := routedNATS(t)
			g := newGroupWith(t, 2, 8, group{share: share, nats: urls})
			g.churn(120)
			g.agree(g.replicas...)
			late := g.add()
			g.ready(late)
			g.agree(late)
			servers[1].Stop()
			g.churn(60)
			g.agree(g.replicas...)
			testkit.Eventually(g.t, func() string {
				for _, s := range g.replicas {
					if st := s.node.Status(); st.Health.State != "joined" || st.Logs[0].Approximate+st.Logs[0].Partial > 0 {
						return fmt.Sprintf("%s: %s, %+v", s.o.Name, st.Health.Line, st.Logs)
					}
				}
				return ""
			})
		})
	}
}

// TestNATSServerGone: replicas go on without their only server, say so, and find each
// other when it is back.
func TestNATSServerGone(t *testing.T) {
	at := parts.FreeAddress(t)
	start := func() *embedded.Server {
		s, err := embedded.Start(embedded.Options{Bind: at})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		return s
	}
	s := start()
	g := newGroupWith(t, 2, 10000, group{share: "mesh", nats: []string{s.URL()}})
	g.churn(20)
	g.agree(g.replicas...)
	s.Stop()
	g.says(g.replicas[1], "partitioned", "not connected to nats")
	start()
	g.says(g.replicas[1], "joined", "1 other member")
	g.churn(20)
	g.agree(g.replicas...)
}

// TestNATSRefuses ends a start with credentials that cannot work in one line.
func TestNATSRefuses(t *testing.T) {
	s, err := embedded.Start(embedded.Options{User: "u", Password: "p"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	for range 5 { // a server that is slow to answer is out of reach
		if _, err = Open(Options{
			Name: "x", Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Endpoints: "unread.yaml",
			Cluster: ClusterOptions{Mode: "nats", NATS: []string{s.URL()}, Label: "test"},
		}); err != nil && strings.Contains(err.Error(), "Authorization") {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "Authorization Violation") || strings.Contains(err.Error(), "\n") {
		t.Errorf("want one line with the reason: %v", err)
	}
}
