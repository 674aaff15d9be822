package scrape

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// TestPageTLS checks that a certificate of an unknown authority is refused, unless the
// configuration names that authority or accepts any certificate. The poller presents a client
// certificate if the server requests one.
func TestPageTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/own" || r.URL.Path == "/asks" && len(r.TLS.PeerCertificates) == 1 {
			_, _ = io.WriteString(w, "vllm:num_requests_waiting 3\nvllm:num_requests_running 1\n")
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	defer server.Close()
	cert, key := pemFiles(t, &server.TLS.Certificates[0])
	f := func(path string, with plugin.PageTLS, want bool) {
		t.Helper()
		settings, err := with.Config()
		if err != nil {
			t.Fatal(err)
		}
		p, err := Open(Options{Scheme: "https", Path: path, TLS: settings, Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		pool, eps := fleetOf(server.Listener.Addr().String())
		pool.Subscribe(p.Apply)
		_, err = p.Refresh(context.Background(), eps[0])
		if got := err == nil && eps[0].Gauges().Waiting == 3; got != want {
			t.Errorf("%+v: read %v, want %v: %v", with, got, want, err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v: %v", with, err)
		}
	}
	f("own", plugin.PageTLS{}, false)
	f("own", plugin.PageTLS{SkipVerify: true}, true)
	f("own", plugin.PageTLS{CA: cert}, true)
	f("asks", plugin.PageTLS{CA: cert}, false)
	f("asks", plugin.PageTLS{CA: cert, Cert: cert, Key: key}, true)
	for _, bad := range []plugin.PageTLS{{CA: key}, {CA: "none"}, {Cert: cert, Key: "none"}} {
		if c, err := bad.Config(); err == nil {
			t.Errorf("%+v: %v", bad, c)
		}
	}
	if _, err := (plugin.PageTLS{SkipVerify: true, CA: "none"}).Config(); err != nil {
		t.Error("unused certificate authorities:", err)
	}
}

// pemFiles writes a certificate and its key.
func pemFiles(t *testing.T, pair *tls.Certificate) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("tls.crt", "CERTIFICATE", pair.Certificate[0]), write("tls.key", "PRIVATE KEY", der)
}
