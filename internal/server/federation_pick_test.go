package server

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/wan"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestRemotePickerIsAsked: in endpoint mode the picker of cluster b tracks each request that a
// sends there until it ends. A request from another cluster is not sent on. If b's picker does not
// answer, a sends the request to b's gateway.
func TestRemotePickerIsAsked(t *testing.T) {
	server, err := embedded.Start(embedded.Options{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret of b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	engines, far := options(t, fleet.Options{Engines: 2})
	far.Name, far.PickListen, far.PickToken = "b-0", parts.FreeAddress(t), "secret of b"
	federated(t, &far, server.URL(), "b", "a")
	e := &far.Federation.Link.Exports[0]
	far.Federation.Link.Lease = time.Minute
	e.Direct, e.EPPs = true, []link.AddressConfig{{Address: far.PickListen}}
	b := open(t, far)

	_, near := options(t, fleet.Options{Engines: 1})
	near.Name = "a-0"
	federated(t, &near, server.URL(), "a", "b")
	near.Federation.Link.Peers[0].PickTokenFile, near.Federation.Link.Lease = token, time.Minute
	near.Federation.Use.Timeout, near.WorkTimeout = time.Minute, time.Minute // the machine may be slow
	near.Federation.Use.Use, near.Federation.Use.Mode = remotecluster.UseAlways, remotecluster.ModeEndpoint
	near.Federation.Use.Rules = remotecluster.Rules{Default: []string{"b"}} // nothing is served here
	a := open(t, near)
	testkit.Await(t, "b is a candidate", func() bool {
		st := a.Status().RemoteClusters
		return len(st) == 1 && st[0].Result == "candidate" && st[0].Endpoints == 2
	})

	ask := func(id string) *request.Decision {
		t.Helper()
		r := &request.Request{ID: id, Headers: http.Header{}, Path: "/v1/completions", Body: []byte(`{"model":"` + vocab.Name + `","prompt":"` + strings.Repeat("asked elsewhere ", 60) + `"}`)}
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		d, err := a.chooser.Choose(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	booked := func() (n int64) {
		for _, ep := range b.Status().Endpoints {
			n += ep.InFlight
		}
		return n
	}
	var addresses []string
	for _, e := range engines.Engines() {
		addresses = append(addresses, e.Addr())
	}
	first := ask("one")
	if !slices.Contains(addresses, first.Endpoints[0]) || booked() != 1 {
		t.Fatalf("goes to %v with %d in b's book, want one of %v", first.Endpoints, booked(), addresses)
	}
	second := ask("two")
	if booked() != 2 {
		t.Errorf("%d in b's book, want 2", booked())
	}
	first.Done(request.Outcome{Status: 200, Complete: true, Served: first.Endpoints[0]})
	second.Done(request.Outcome{})
	testkit.Await(t, "b has given both back", func() bool { return booked() == 0 })

	if err := b.pick.Close(); err != nil {
		t.Fatal(err)
	}
	third := ask("three")
	defer third.Done(request.Outcome{})
	if want := "127.0.0.1:1"; third.Endpoints[0] != want {
		t.Errorf("goes to %v while b's picker does not answer, want %s", third.Endpoints, want)
	}
}

// TestRemotePickerOverTLS: an export with a server name requires TLS. The client verifies that name
// against the file's authority. If the certificate does not match, the picker gets no call and the
// request goes through the gateway.
func TestRemotePickerOverTLS(t *testing.T) {
	server, err := embedded.Start(embedded.Options{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	dir, foreign := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, foreign} {
		if err := wan.Authorize(d, "picks.b"); err != nil {
			t.Fatal(err)
		}
	}
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("secret of b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir, sni string
		asked    bool
	}{
		"by its name":          {dir, "picks.b", true},
		"another name":         {dir, "picks.c", false},
		"of another authority": {foreign, "picks.b", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, far := options(t, fleet.Options{Engines: 2})
			far.Name, far.PickListen, far.PickToken = "b-0", parts.FreeAddress(t), "secret of b"
			federated(t, &far, server.URL(), "b", "a")
			front := newTerminator(t, c.dir, far.PickListen)
			e := &far.Federation.Link.Exports[0]
			e.Direct, e.EPPs = true, []link.AddressConfig{{Address: front.lis.Addr().String(), SNI: c.sni}}
			far.Federation.Link.Lease = time.Minute
			open(t, far)

			_, near := options(t, fleet.Options{Engines: 1})
			near.Name = "a-0"
			federated(t, &near, server.URL(), "a", "b")
			near.Federation.Link.CAFile = filepath.Join(dir, wan.CAFile)
			near.Federation.Link.Peers[0].PickTokenFile, near.Federation.Link.Lease = token, time.Minute
			near.Federation.Use.Timeout, near.WorkTimeout = time.Minute, time.Minute // the machine may be slow
			near.Federation.Use.Use, near.Federation.Use.Mode = remotecluster.UseAlways, remotecluster.ModeEndpoint
			near.Federation.Use.Rules = remotecluster.Rules{Default: []string{"b"}}
			a := open(t, near)
			testkit.Await(t, "b is a candidate", func() bool {
				st := a.Status().RemoteClusters
				return len(st) == 1 && st[0].Result == "candidate" && st[0].Endpoints == 2
			})
			r := &request.Request{ID: "r", Headers: http.Header{}, Path: "/v1/completions", Body: []byte(`{"model":"` + vocab.Name + `","prompt":"` + strings.Repeat("asked over tls ", 60) + `"}`)}
			if err := request.Parse(r); err != nil {
				t.Fatal(err)
			}
			d, err := a.chooser.Choose(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Done(request.Outcome{})
			if gateway := d.Endpoints[0] == "127.0.0.1:1"; gateway == c.asked || front.passed.Load() != c.asked {
				t.Errorf("goes to %v, its picker was reached: %v, want %v", d.Endpoints, front.passed.Load(), c.asked)
			}
			if got := front.name.Load(); got == nil || *got != c.sni {
				t.Errorf("asked for another name than %s", c.sni)
			}
		})
	}
}

// terminator ends TLS before an address.
type terminator struct {
	lis    net.Listener
	name   atomic.Pointer[string] // server name of the last handshake
	passed atomic.Bool            // a request came through
}

func newTerminator(t *testing.T, dir, to string) *terminator {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "picks.b.crt"), filepath.Join(dir, "picks.b.key"))
	if err != nil {
		t.Fatal(err)
	}
	f := &terminator{}
	f.lis, err = tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		f.name.Store(&h.ServerName)
		return nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to})
	s := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.passed.Store(true)
		proxy.ServeHTTP(w, r)
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(f.lis)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-served
	})
	return f
}
