package server

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// unchanged fails if replicas have fewer blocks than before. On a busy machine an engine may look
// unhealthy and get a probe request, which stores blocks and changes the truth. In that case the
// test compares with the new truth by agree.
func (g *group) unchanged(what string, before map[string]content) {
	g.t.Helper()
	for _, s := range g.replicas {
		if got := contents(s); !maps.Equal(got, before) && g.late() == "" && maps.Equal(contents(g.alone), before) {
			g.t.Errorf("%s: %s has %v, had %v; %s", what, s.o.Name, got, before, describe(s))
		}
	}
}

// A rereading of all streams, on all replicas at once, loses no blocks, although the engines'
// replay rings of a few batches could not replay them. Another chat template does not lose blocks
// either, because it does not affect the engines' blocks.
func TestReloadKeepsWhatIsKnown(t *testing.T) {
	for _, share := range []string{"mesh", "partitioned"} {
		t.Run(share, func(t *testing.T) {
			g := newGroup(t, 2, 8, share)
			g.churn(120)
			g.agree(g.replicas...)
			before := contents(g.alone)
			reload := func(what string) {
				for _, s := range g.replicas {
					if err := s.Reload(t.Context()); err != nil {
						t.Fatal(err)
					}
					g.unchanged(what, before)
				}
				for _, s := range g.replicas {
					if err := s.models.Registry().Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
					s.share.Set()
				}
				g.unchanged(what, before)
				g.agree(g.replicas...)
			}
			reload("the same files")
			template := filepath.Join(g.dir, "model", "chat_template.jinja")
			if err := os.WriteFile(template, []byte("{{ messages[0].content }}"), 0o600); err != nil {
				t.Fatal(err)
			}
			reload("another template")
			if st := g.replicas[0].models.Status(); st[0].State != "ready" {
				t.Errorf("%+v", st)
			}
		})
	}
}

// Endpoints that leave the list of all replicas for a moment and return keep their state. Events
// published in between are read, and in-flight requests still count.
func TestFlapKeepsWhatIsKnown(t *testing.T) {
	g := newGroup(t, 2, 8, "partitioned")
	g.churn(120)
	g.agree(g.replicas...)
	path := filepath.Join(g.dir, "endpoints.yaml")
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	listed := func(n int) {
		testkit.Eventually(g.t, func() string {
			for _, s := range append(g.replicas, g.alone) {
				if got := len(s.pool.Snapshot().Endpoints); got != n {
					return fmt.Sprintf("%s: %d", s.o.Name, got)
				}
			}
			return ""
		})
	}
	first := g.replicas[0].pool.Snapshot().Endpoints
	if err := os.WriteFile(path, []byte("endpoints: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	listed(0)
	g.churn(30)
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	listed(groupEngines)
	for i, ep := range g.replicas[0].pool.Snapshot().Endpoints {
		if ep != first[i] {
			t.Errorf("%s is another endpoint", ep.Address)
		}
	}
	g.agree(g.replicas...)
}
