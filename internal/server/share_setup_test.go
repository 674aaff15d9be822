package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// misfit starts a replica of another setup in the group.
func (g *group) misfit(change func(*Options)) *Server {
	g.t.Helper()
	g.change = change
	defer func() { g.change = nil }()
	return g.add()
}

// says waits until a replica's line reports a problem.
func (g *group) says(s *Server, state, part string) {
	g.t.Helper()
	testkit.Eventually(g.t, func() string {
		if h := s.node.Status().Health; h.State != state || !strings.Contains(h.Line, part) {
			return h.Line
		}
		return ""
	})
}

// Replicas with different files for a model would exchange blocks that no prompt matches. They read
// the model's engines directly, report this, and share again once their files are equal.
func TestOtherModelFiles(t *testing.T) {
	parts.Full(t)
	g := newGroup(t, 1, 10000, "partitioned")
	g.churn(20)
	models := filepath.Join(g.dir, "late")
	odd := g.misfit(func(o *Options) {
		o.Models = []ModelOptions{{Name: vocab.Name, Path: models}}
	})
	first := g.replicas[0]
	g.says(first, "misconfigured", "replica-1 has different files, or none, for "+vocab.Name)
	g.says(odd, "misconfigured", "replica-0 has different files")
	for _, s := range []*Server{first, odd} {
		testkit.Eventually(g.t, func() string {
			if n := count(s, "direct"); n != groupEngines {
				return fmt.Sprint(s.o.Name, n)
			}
			return ""
		})
	}
	g.churn(20)
	g.agree(first)
	if err := os.CopyFS(models, os.DirFS(filepath.Join(g.dir, "model"))); err != nil {
		t.Fatal(err)
	}
	if err := odd.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.says(first, "joined", "")
	g.says(odd, "joined", "")
	testkit.Eventually(g.t, func() string {
		if a, b := count(first, "shared"), count(odd, "shared"); a+b != 2*groupEngines {
			return fmt.Sprint(a, b)
		}
		return ""
	})
	g.churn(20)
	g.agree(first, odd)
}

// Replicas of another secret share no index, and say so.
func TestOtherSecret(t *testing.T) {
	parts.Full(t)
	g := newGroup(t, 1, 10000, "mesh")
	odd := g.misfit(func(o *Options) { o.Secret = "another" })
	g.says(g.replicas[0], "misconfigured", "replica-1 has another --secret-file")
	g.says(odd, "misconfigured", "replica-0 has another --secret-file")
	g.stop(odd)
	g.says(g.replicas[0], "partitioned", "replica-1") // one of two vanished
}

// A new member of the previous release reports no setup. It is accepted.
func TestSetupUnknown(t *testing.T) {
	g := newGroup(t, 2, 10000, "mesh")
	s := g.replicas[0]
	s.setup.Drop(g.replicas[1].node.Self().ID)
	if id, what := s.setup.Mismatch(); id != "" {
		t.Errorf("%s %s", id, what)
	}
	g.says(s, "joined", "")
}
