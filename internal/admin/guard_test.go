package admin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/budget"
)

// every returns options with every page.
func every() Options {
	return Options{
		Gatherer: prometheus.NewRegistry(), Ready: func() []Check { return nil }, Status: func() any { return 1 },
		Decisions: func(context.Context, string, int, bool) (any, []string) { return 1, nil }, Explain: func(_ context.Context, r *http.Request) (any, error) { return io.ReadAll(r.Body) },
		Record: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), Flight: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), Reload: func(context.Context) error { return nil },
	}
}

var (
	openPages    = []string{"GET /metrics", "GET /healthz", "GET /readyz", "GET /status", "GET /"}
	guardedPages = []string{"GET /debug/decisions", "POST /debug/explain", "GET /debug/record", "POST /debug/flight", "GET /debug/flight", "GET /debug/flight/name", "POST /-/reload", "GET /debug/pprof/", "GET /debug/pprof/heap", "GET /debug/pprof/cmdline", "GET /debug/pprof/symbol"}
)

// TestWhoIsLetIn requests every page from authorized and unauthorized clients.
func TestWhoIsLetIn(t *testing.T) {
	shown := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	cases := []struct {
		name   string
		g      guard
		from   string
		host   string
		header map[string]string
		tls    *tls.ConnectionState
		to     net.IP // destination address
		want   string // reason of the rejection
	}{
		{name: "this machine", from: "127.0.0.1:1", host: "localhost:9090"},
		{name: "this machine by IPv6", from: "[::1]:1", host: "[::1]:9090"},
		{name: "this machine to its own address", from: "127.0.0.1:1", host: "localhost:9090", to: net.IPv4(127, 0, 0, 1)},
		{name: "another machine by a proxy beside us", from: "127.0.0.6:1", host: "localhost:9090", to: net.IPv4(10, 1, 2, 4), want: refusedClient},
		{name: "another machine", from: "10.1.2.3:1", host: "10.1.2.4:9090", want: refusedClient},
		{name: "another machine that says localhost", from: "10.1.2.3:1", host: "localhost", want: refusedClient},
		{name: "another machine that says where it comes from", from: "10.1.2.3:1", host: "localhost", header: map[string]string{"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1"}, want: refusedClient},
		{name: "a name that was pointed at this machine", from: "127.0.0.1:1", host: "evil.example:9090", want: refusedHost},
		{name: "a page of another site", from: "127.0.0.1:1", host: "localhost:9090", header: map[string]string{"Origin": "http://evil.example"}, want: refusedSite},
		{name: "a page of another port", from: "127.0.0.1:1", host: "localhost:9090", header: map[string]string{"Origin": "http://localhost:8080"}, want: refusedSite},
		{name: "a page without origin", from: "127.0.0.1:1", host: "localhost:9090", header: map[string]string{"Origin": "null"}, want: refusedSite},
		{name: "a browser that says so", from: "127.0.0.1:1", host: "localhost:9090", header: map[string]string{"Sec-Fetch-Site": "cross-site"}, want: refusedSite},
		{name: "the page itself", from: "127.0.0.1:1", host: "localhost:9090", header: map[string]string{"Origin": "http://localhost:9090", "Sec-Fetch-Site": "same-origin"}},
		{name: "a token", g: guard{token: "secret"}, from: "10.1.2.3:1", host: "pod:9091", header: map[string]string{"Authorization": "Bearer secret"}},
		{name: "a wrong token", g: guard{token: "secret"}, from: "10.1.2.3:1", host: "pod:9091", header: map[string]string{"Authorization": "Bearer secre"}, want: refusedClient},
		{name: "an empty token where none is set", from: "10.1.2.3:1", host: "pod:9091", header: map[string]string{"Authorization": "Bearer "}, want: refusedClient},
		{name: "a token in a page of another site", g: guard{token: "secret"}, from: "10.1.2.3:1", host: "pod:9091", header: map[string]string{"Authorization": "Bearer secret", "Origin": "http://evil.example"}, want: refusedSite},
		{name: "a certificate", g: guard{certificates: true}, from: "10.1.2.3:1", host: "pod:9091", tls: shown},
		{name: "a certificate that nobody verified", from: "10.1.2.3:1", host: "pod:9091", tls: shown, want: refusedClient},
		{name: "no certificate", g: guard{certificates: true}, from: "10.1.2.3:1", host: "pod:9091", tls: &tls.ConnectionState{}, want: refusedClient},
		{name: "a socket file", g: guard{socket: true}, from: "@", host: "localhost"},
	}
	for _, c := range cases {
		m := newMetrics(nil)
		c.g.metrics = m
		h := handler(every(), c.g, m)
		refused := 0
		for i, page := range append(append([]string(nil), openPages...), guardedPages...) {
			method, path, _ := strings.Cut(page, " ")
			r := httptest.NewRequest(method, "http://"+c.host+path, nil)
			r.RemoteAddr, r.TLS = c.from, c.tls
			if c.to != nil {
				r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: c.to}))
			}
			for k, v := range c.header {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			want := http.StatusOK
			if i >= len(openPages) && c.want != "" {
				want = http.StatusForbidden
				refused++
			}
			if w.Code != want {
				t.Errorf("%s: %s: %d, want %d: %s", c.name, page, w.Code, want, w.Body)
			}
			for name, part := range map[string]string{"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store"} {
				if !strings.Contains(w.Header().Get(name), part) {
					t.Errorf("%s: %s: %s is %q", c.name, page, name, w.Header().Get(name))
				}
			}
		}
		if c.want != "" && testutil.ToFloat64(m.refused.WithLabelValues(c.want)) != float64(refused) {
			t.Errorf("%s: counted %v refusals, want %d", c.name, testutil.ToFloat64(m.refused.WithLabelValues(c.want)), refused)
		}
	}
}

// TestBodiesAreBounded sends bodies that exceed every page's limit.
func TestBodiesAreBounded(t *testing.T) {
	o := every()
	o.Budget = budget.New(64 << 20)
	share := int(o.Budget.Share(budget.Admin))
	o.Reload = func(context.Context) error { return nil }
	h := pages(o)
	post := func(path string, body io.Reader, length int64) int {
		r := httptest.NewRequest("POST", "http://localhost"+path, body)
		r.RemoteAddr, r.ContentLength = "127.0.0.1:1", length
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for n, want := range map[int]int{share: 200, share + 1: 503} {
		if got := post("/debug/explain", strings.NewReader(strings.Repeat("x", n)), int64(n)); got != want {
			t.Errorf("explain of %d bytes: %d, want %d", n, got, want)
		}
	}
	if got := post("/debug/explain", strings.NewReader("x"), -1); got != http.StatusLengthRequired {
		t.Errorf("explain without a length: %d", got)
	}
	if used := o.Budget.Used(budget.Admin); used != 0 {
		t.Errorf("%d bytes were not released", used)
	}
}

// certificate returns a certificate for loopback, and a pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestControl opens control listeners of every kind and uses them.
func TestControl(t *testing.T) {
	cert, _ := certificate(t)
	secure := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	for _, o := range []Options{{Control: "0.0.0.0:0"}, {Control: "0.0.0.0:0", Token: "x"}, {Control: "0.0.0.0:0", TLS: secure}} {
		o.Bind = "127.0.0.1:0"
		if s, err := Open(o); !errors.Is(err, ErrControl) {
			t.Errorf("unauthenticated control listener: %v", err)
			s.Close(t.Context())
		}
	}
	dir, err := os.MkdirTemp("", "c") // socket file names must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	for range 2 { // the second time over the file left by the first
		o := every()
		o.Bind, o.Control = "127.0.0.1:0", "unix:"+path
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("socket file is %v: %v", st, err)
		}
		var got int
		if err := Client(o.Control).Get(t.Context(), "/debug/decisions", &got); err != nil || got != 1 {
			t.Errorf("over a socket file: %d, %v", got, err)
		}
		for _, at := range []Client{Client(s.Addr().String()), Client("http://" + s.Addr().String()), Client("http://" + s.Addr().String() + "/")} {
			if err := at.Get(t.Context(), "/debug/decisions", &got); err != nil || got != 1 {
				t.Errorf("%s: %d, %v", at, got, err)
			}
		}
		if _, err := Open(o); err == nil {
			t.Error("took over the socket file of a running process")
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err == nil {
			lis.SetUnlinkOnClose(false)
			lis.Close()
		}
	}
}

// TestControlToken uses a control listener over TLS with the token from the environment.
func TestControlToken(t *testing.T) {
	cert, pool := certificate(t)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := lis.Addr().String()
	lis.Close()
	o := every()
	o.Bind, o.Control, o.Token, o.TLS = "127.0.0.1:0", at, "secret", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
	for token, want := range map[string]int{"secret": 200, "other": 403} {
		r, _ := http.NewRequest("POST", "https://"+at+"/-/reload", nil)
		r.Host = "pod.example" // not a name of this machine
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("token %s: %d, want %d", token, resp.StatusCode, want)
		}
	}
}

// TestOrigins: only a page with the address of the request itself is of the same site.
func TestOrigins(t *testing.T) {
	for _, c := range []struct {
		host, origin string
		cross        bool
	}{
		{"localhost:9090", "", false},
		{"localhost:9090", "http://localhost:9090", false},
		{"localhost:9090", "http://localhost:9091", true},
		{"localhost:9090", "null", true},
		{"", "null", true},
		{"", "http://", true},
		{"", "http://a b", true},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if got := crossSite(r); got != c.cross {
			t.Errorf("a request to %q from a page of %q: cross site = %t, want %t", c.host, c.origin, got, c.cross)
		}
	}
}

// TestNamesOfThisMachine: a Host header names this machine by a loopback address or by localhost.
func TestNamesOfThisMachine(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.8.8.8:80": true, "[::1]:80": true, "::1": true, "localhost": true, "localhost:1": true, "a.localhost": true,
		"10.0.0.1": false, "10.0.0.1:80": false, "[2001:db8::1]:80": false, "alocalhost": false, "evil.example": false, "": false,
	} {
		if got := loopbackName(host); got != want {
			t.Errorf("%q names this machine: %t, want %t", host, got, want)
		}
	}
}

// TestClientsOfThisMachine: a client without a readable loopback address is not of this machine.
func TestClientsOfThisMachine(t *testing.T) {
	for from, want := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "10.0.0.1:1": false, "127.0.0.1": false, "": false, "@": false, "localhost:1": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = from
		if got := fromLoopback(r); got != want {
			t.Errorf("a client at %q is of this machine: %t, want %t", from, got, want)
		}
	}
}

// TestRefusalsAreCounted: the counter is on the metrics page of the registry.
func TestRefusalsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	newMetrics(registry).count(refusedClient)
	if n, err := testutil.GatherAndCount(registry, "grapevine_admin_refused_total"); err != nil || n != 1 {
		t.Errorf("%d series of refusals, %v, want 1", n, err)
	}
	newMetrics(nil).count(refusedClient)
}
