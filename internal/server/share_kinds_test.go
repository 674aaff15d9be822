package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// State is shared in the same way for engines without a start time, and for engines like SGLang
// with pages smaller than an index block. A new replica gets blocks that no engine can replay any
// more. If a reader dies, another takes over. If an engine restarts, its index becomes empty.
func TestEveryKindOfEngineIsShared(t *testing.T) {
	parts.Full(t)
	for _, kind := range []group{{unnamed: true}, {page: 4}, {page: 1, unnamed: true}} {
		for _, share := range []string{"mesh", "partitioned"} {
			t.Run(fmt.Sprintf("page %d, unnamed %v, %s", kind.page, kind.unnamed, share), func(t *testing.T) {
				kind := kind
				kind.share = share
				g := newGroupWith(t, 2, 40, kind)
				g.churn(160)
				g.agree(g.replicas...)
				late := g.add()
				g.ready(late)
				g.agree(late)
				for _, s := range g.replicas {
					if n := count(s, "shared"); n != groupEngines {
						t.Errorf("%s shares %d of %d: %s", s.o.Name, n, groupEngines, describe(s))
					}
				}
				g.stop(g.replicas[0])
				g.replicas = g.replicas[1:]
				testkit.Eventually(g.t, func() string {
					for _, s := range g.replicas {
						for _, ep := range s.pool.Snapshot().Endpoints {
							if k := s.share.Knowledge(ep.ID).State; k != knowledge.Exact {
								return fmt.Sprintf("%s: %s is %v; %s", s.o.Name, ep.Address, k, describe(s))
							}
						}
					}
					return ""
				})
				g.churn(30)
				if kind.page == 0 {
					g.agree(g.replicas...)
				}
				g.same()
				e := g.fleet.Engines()[0]
				if err := e.Restart(sim.RestartOptions{}); err != nil {
					t.Fatal(err)
				}
				testkit.Eventually(g.t, func() string {
					for _, s := range append(g.replicas, g.alone) {
						if c := contents(s)[e.Addr()]; c.count > 0 {
							return fmt.Sprintf("%s: %v; %s", s.o.Name, c, describe(s))
						}
					}
					return ""
				})
				g.churn(30)
				g.same()
				testkit.Eventually(g.t, func() string {
					want := contents(g.alone)[e.Addr()]
					for _, s := range g.replicas {
						if c := contents(s)[e.Addr()]; c != want {
							return fmt.Sprintf("%s: %v, want %v; %s", s.o.Name, c, want, describe(s))
						}
					}
					return ""
				})
			})
		}
	}
}

// same waits until the replicas have the same content for each engine, and no content that the
// reference index lacks.
func (g *group) same() {
	g.t.Helper()
	testkit.Eventually(g.t, func() string {
		if late := g.late(); late != "" {
			return late
		}
		want, first := contents(g.alone), contents(g.replicas[0])
		for _, s := range g.replicas {
			for at, c := range contents(s) {
				if c != first[at] || c.count > want[at].count {
					return fmt.Sprintf("%s: %s: %v, want %v, truth %v; %s", s.o.Name, at, c, first[at], want[at], describe(s))
				}
			}
		}
		return ""
	})
}

// The line that reports an equal group names the states that are not shared.
func TestWhatIsNotSharedIsNamed(t *testing.T) {
	g := newGroupWith(t, 0, 10000, group{share: "mesh", replay: sim.ReplayOff})
	g.add()
	g.add()
	want := fmt.Sprintf("joined: 1 other member, all reachable, digests equal; %d event streams are not shared: ", groupEngines)
	for _, s := range g.replicas {
		testkit.Eventually(g.t, func() string {
			line := s.node.Status().Health.Line
			if !strings.HasPrefix(line, want) || !strings.HasSuffix(line, "/0 because it has no replay port, ...") {
				return line
			}
			return ""
		})
	}
}
