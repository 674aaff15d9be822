package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// misfit starts a replica of another setup in the group.
func (g *group) misfit(change func(*Options)) *Server {
	g.t.Helper()
	g.change = change
	defer func() { g.change = nil }()
	return g.add()
}

// says waits until a replica's line names a trouble.
func (g *group) says(s *Server, state, part string) {
	g.t.Helper()
	g.eventually(fmt.Sprintf("%s says %q", s.o.Name, part), func() string {
		if h := s.node.Status().Health; h.State != state || !strings.Contains(h.Line, part) {
			return h.Line
		}
		return ""
	})
}

// Replicas that have other files for a model would hand blocks to each other that
// no prompt matches. They read its engines by themselves, say so, and share again
// once their files are the same.
func TestOtherModelFiles(t *testing.T) {
	g := newGroup(t, 1, 10000, "partitioned")
	g.churn(20)
	models := filepath.Join(g.dir, "late")
	odd := g.misfit(func(o *Options) {
		o.Models = []ModelOptions{{Name: vocab.Name, Path: models}}
	})
	first := g.replicas[0]
	g.says(first, "misconfigured", "replica-1 has other files, or none, for "+vocab.Name)
	g.says(odd, "misconfigured", "replica-0 has other files")
	for _, s := range []*Server{first, odd} {
		g.eventually("each reads for itself", func() string {
			if n := s.share.count(modeDirect); n != groupEngines {
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
	g.eventually("shared again", func() string {
		if a, b := first.share.count(modeShared), odd.share.count(modeShared); a+b != 2*groupEngines {
			return fmt.Sprint(a, b)
		}
		return ""
	})
	g.churn(20)
	g.agree(first, odd)
}

// Replicas of another secret share no index, and say so.
func TestOtherSecret(t *testing.T) {
	g := newGroup(t, 1, 10000, "mesh")
	odd := g.misfit(func(o *Options) { o.Secret = "another" })
	g.says(g.replicas[0], "misconfigured", "replica-1 has another --secret-file")
	g.says(odd, "misconfigured", "replica-0 has another --secret-file")
	g.stop(odd)
	g.says(g.replicas[0], "partitioned", "replica-1") // one of two went without a word
}

func TestSetupCodec(t *testing.T) {
	want := setup{secret: 7, models: map[string]uint64{"a": printLoading, "b": printNone, "": 1 << 63}}
	b := want.append(nil)
	got, err := readSetup(b)
	if err != nil || !cmp.Equal(got, want, cmp.AllowUnexported(setup{})) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for n := range b {
		if _, err := readSetup(b[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken for a setup", n, len(b))
		}
	}
}

func TestSetupDiffers(t *testing.T) {
	f := func(a, b map[string]uint64, want ...string) {
		t.Helper()
		x, y := setup{models: a}, setup{models: b}
		if got := x.differ(&y); !cmp.Equal(got, want) {
			t.Errorf("%v and %v: %q, want %q", a, b, got, want)
		}
		if got := y.differ(&x); !cmp.Equal(got, want) {
			t.Errorf("%v and %v: %q, want %q", b, a, got, want)
		}
	}
	type m = map[string]uint64
	f(nil, nil)
	f(m{}, m{})
	f(m{"a": 5, "b": 6}, m{"b": 6, "a": 5})
	f(m{"a": printNone}, m{})
	f(m{"a": 5}, m{}, "a")
	f(m{"a": 5, "c": 8}, m{"a": 6, "b": 7}, "a", "b", "c")
	f(m{"a": printLoading}, m{"a": 6})
	f(m{"a": printLoading, "b": 1}, m{"a": 6, "b": 2}, "b")
}

// A newcomer of the release before says nothing of its setup, and is believed.
func TestSetupUnknown(t *testing.T) {
	g := newGroup(t, 2, 10000, "mesh")
	s := g.replicas[0]
	s.setup.Drop(g.replicas[1].node.Self().ID)
	if id, what := s.setup.trouble(); id != "" {
		t.Errorf("%s %s", id, what)
	}
	g.says(s, "joined", "")
}

// An endpoint without names is read by the only model; by none where there are
// several, in whatever order they are looked at.
func TestSetupWithoutNames(t *testing.T) {
	for _, c := range []struct {
		models map[string]uint64
		want   uint64
	}{
		{nil, printNone},
		{map[string]uint64{"a": 7, "alias": 7}, 7},
		{map[string]uint64{"a": printLoading}, printLoading},
		{map[string]uint64{"a": 7, "b": 8}, printNone},
		{map[string]uint64{"a": 7, "b": printNone}, printNone},
	} {
		for range 100 {
			if got := (&setup{models: c.models}).of(nil); got != c.want {
				t.Fatalf("%v: %d and not %d", c.models, got, c.want)
			}
		}
	}
}
