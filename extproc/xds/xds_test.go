package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

func TestSameStateSameVersion(t *testing.T) {
	a, b := New(nil), New(nil)
	defer a.Close()
	defer b.Close()
	p := &envoyconf.Params{Plaintext: true}
	states := []State{
		{Endpoints: []string{"10.0.0.2:8000", "10.0.0.1:8000"}, Replicas: []string{"10.0.1.1:9002"}, Listener: p},
		{Endpoints: []string{"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.2:8000"}, Replicas: []string{"10.0.1.1:9002"}, Listener: p},
	}
	for i, s := range []*Server{a, b} {
		if err := s.Set(t.Context(), states[i]); err != nil {
			t.Fatal(err)
		}
	}
	if a.Version() != b.Version() || a.Version() == "" {
		t.Errorf("versions %q and %q", a.Version(), b.Version())
	}
	if err := a.Set(t.Context(), State{Endpoints: []string{"10.0.0.1:8000"}, Listener: p}); err != nil {
		t.Fatal(err)
	}
	if a.Version() == b.Version() {
		t.Error("different states have the same version")
	}
}

func TestBadAddressChangesNothing(t *testing.T) {
	s := New(nil)
	defer s.Close()
	if err := s.Set(t.Context(), State{Endpoints: []string{"engine:8000"}}); !errors.Is(err, ErrAddress) {
		t.Errorf("got %v", err)
	}
	if s.Version() != "" {
		t.Error("rejected state was published")
	}
}

// A real Envoy with only a bootstrap gets its listener from this server, follows the pool, and
// continues when the server is gone.
func TestEnvoyFollows(t *testing.T) {
	engine := func(name string) (*httptest.Server, string) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
		t.Cleanup(s.Close)
		return s, strings.TrimPrefix(s.URL, "http://")
	}
	_, one := engine("one")
	_, two := engine("two")
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(nil)
	g := grpc.NewServer(s.Limits()...)
	s.Register(g)
	go func() { _ = g.Serve(lis) }()
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			s.Close()
			g.Stop()
		}
	}
	t.Cleanup(stop)
	listen := &envoyconf.Params{Plaintext: true, Listen: "127.0.0.1:0"}
	if err := s.Set(t.Context(), State{Endpoints: []string{one}, Listener: listen}); err != nil {
		t.Fatal(err)
	}
	conf, err := Bootstrap{Admin: "127.0.0.1:0", Replicas: []string{lis.Addr().String()}, Plaintext: true}.Render()
	if err != nil {
		t.Fatal(err)
	}
	envoy := testkit.StartEnvoy(t, conf)
	url := "http://" + envoy.Addr("inference") + "/"
	testkit.Await(t, "Envoy sends to the first endpoint", func() bool { return slices.Equal(answers(url), []string{"one"}) })
	if err := s.Set(t.Context(), State{Endpoints: []string{two}, Listener: listen}); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "Envoy sends to the second endpoint", func() bool { return slices.Equal(answers(url), []string{"two"}) })
	stop()
	for range 5 {
		if got := answers(url); !slices.Equal(got, []string{"two"}) {
			t.Errorf("with every replica gone: %v", got)
		}
	}
}

// answers returns the distinct responses to a few requests.
func answers(url string) []string {
	seen := map[string]bool{}
	client := &http.Client{Timeout: 30 * time.Second}
	for range 6 {
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
		resp, err := client.Do(req)
		if err != nil {
			return []string{err.Error()}
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		seen[string(b)] = true
	}
	var out []string
	for k := range seen {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
