package listen

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// reloadEvery bounds how often the files of a certificate are looked at.
const reloadEvery = time.Second

// TLS says how a listener is secured. The zero value serves a self-signed
// certificate made at start, which proxies accept when they do not verify.
type TLS struct {
	Plaintext bool   // no TLS at all
	CertFile  string // PEM; read anew when it changes
	KeyFile   string // PEM; read anew when it changes

	// ClientCA is a PEM file of those who sign proxies' certificates; read anew
	// when it changes. With it a proxy without such a certificate is refused.
	ClientCA string
	// ClientNames are the URI (SPIFFE) or DNS names of which a proxy's
	// certificate must carry one; empty accepts any that ClientCA signed.
	ClientNames []string
	// Min is the oldest version, "1.2" or "1.3"; "" means 1.2.
	Min string
}

// Errors of TLS settings.
var (
	errMinVersion  = errors.New("listen: TLS: the oldest version must be 1.2 or 1.3")
	errClientCA    = errors.New("listen: TLS: the file of client authorities has no certificate")
	errClientNeeds = errors.New("listen: TLS: client certificates need TLS, and names need a file of authorities")
	errClientName  = errors.New("listen: TLS: the client's certificate carries none of the names that are let in")
)

// versions are the values of TLS.Min.
var versions = map[string]uint16{"": tls.VersionTLS12, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Credentials returns what a gRPC server needs: TLS, or plaintext, on connections that are
// paced (see [Pacing]). paced counts those that wait, by the listener's name.
func (t TLS) Credentials(listener string, paced func(listener string), log *slog.Logger) (credentials.TransportCredentials, error) {
	cfg, err := t.Config(log)
	if err != nil {
		return nil, err
	}
	out := insecure.NewCredentials()
	if cfg != nil {
		out = credentials.NewTLS(cfg)
	}
	return (&Pacing{Listener: listener, Paced: func() { paced(listener) }, Log: log}).Over(out), nil
}

// Config returns what a TLS server of HTTP/2 needs, nil for plaintext. log is told of
// certificates that are read anew.
func (t TLS) Config(log *slog.Logger) (*tls.Config, error) { return t.config(log, time.Now) }

// config returns nil for plaintext.
func (t TLS) config(log *slog.Logger, now func() time.Time) (*tls.Config, error) {
	if t.ClientCA != "" && t.Plaintext || t.ClientCA == "" && len(t.ClientNames) > 0 {
		return nil, errClientNeeds
	}
	if t.Plaintext {
		return nil, nil
	}
	oldest, known := versions[t.Min]
	if !known {
		return nil, fmt.Errorf("%w: %q", errMinVersion, t.Min)
	}
	cfg := &tls.Config{MinVersion: oldest, NextProtos: []string{"h2"}}
	if err := t.clients(cfg, log, now); err != nil {
		return nil, err
	}
	if t.CertFile == "" && t.KeyFile == "" {
		cert, err := SelfSigned(now())
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{cert}
		return cfg, nil
	}
	f := &watched[tls.Certificate]{what: "certificate", files: []string{t.CertFile, t.KeyFile}, log: log, now: now}
	f.read = func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("listen: certificate: %w", err)
		}
		return &cert, nil
	}
	if err := f.load(); err != nil {
		return nil, err
	}
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.get(), nil }
	return cfg, nil
}

// clients makes cfg demand certificates of clients, if a file says who signs
// them.
func (t TLS) clients(cfg *tls.Config, log *slog.Logger, now func() time.Time) error {
	if t.ClientCA == "" {
		return nil
	}
	f := &watched[x509.CertPool]{what: "client authorities", files: []string{t.ClientCA}, log: log, now: now}
	f.read = func() (*x509.CertPool, error) {
		pem, err := os.ReadFile(t.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("listen: client authorities: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: %s", errClientCA, t.ClientCA)
		}
		return pool, nil
	}
	if err := f.load(); err != nil {
		return err
	}
	// The chain is verified here and not by the configuration, so that new
	// authorities count from the next handshake on.
	cfg.ClientAuth = tls.RequireAnyClientCert
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		leaf, between := cs.PeerCertificates[0], x509.NewCertPool()
		for _, c := range cs.PeerCertificates[1:] {
			between.AddCert(c)
		}
		_, err := leaf.Verify(x509.VerifyOptions{
			Roots: f.get(), Intermediates: between, CurrentTime: now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		if err != nil {
			return err
		}
		return t.admit(leaf)
	}
	return nil
}

// admit checks the names of a verified certificate.
func (t TLS) admit(leaf *x509.Certificate) error {
	if len(t.ClientNames) == 0 {
		return nil
	}
	for _, name := range CertificateNames(leaf) {
		if slices.Contains(t.ClientNames, name) {
			return nil
		}
	}
	return errClientName
}

// CertificateNames returns the SPIFFE and DNS names that a certificate carries.
func CertificateNames(leaf *x509.Certificate) (names []string) {
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	return append(names, leaf.DNSNames...)
}

// watched is a value that is read from files and follows their changes when it
// is asked for, without a goroutine.
type watched[T any] struct {
	what  string
	files []string
	read  func() (*T, error)
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex
	current *T
	stamp   []time.Time // modification times that current was read at
	checked time.Time
	loading bool // a caller of get looks at the files
}

// get returns the newest value that could be read. One caller at a time looks at the files;
// the others get the current value meanwhile, so that a disk that hangs stops one handshake.
func (f *watched[T]) get() *T {
	now := f.now()
	f.mu.Lock()
	stamp, current := f.stamp, f.current
	due := !f.loading && now.Sub(f.checked) >= reloadEvery
	if due {
		f.loading, f.checked = true, now
	}
	f.mu.Unlock()
	if !due {
		return current
	}

	var v *T
	var err error
	newStamp := f.modified()
	changed := !slices.Equal(newStamp, stamp)
	if changed {
		v, err = f.read()
	}
	f.mu.Lock()
	f.loading = false
	if v != nil && err == nil {
		f.current, f.stamp = v, newStamp
	}
	current = f.current
	f.mu.Unlock()
	switch {
	case err != nil:
		f.log.Warn("TLS file not reloaded, using the previous one", "what", f.what, "error", err)
	case changed:
		f.log.Info("TLS file reloaded", "what", f.what, "file", f.files[0])
	}
	return current
}

// load reads the first value.
func (f *watched[T]) load() error {
	stamp := f.modified()
	v, err := f.read()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current, f.stamp = v, stamp
	return nil
}

// modified returns when the files were written; the zero time for one that
// cannot be looked at.
func (f *watched[T]) modified() []time.Time {
	t := make([]time.Time, len(f.files))
	for i, name := range f.files {
		if info, err := os.Stat(name); err == nil {
			t[i] = info.ModTime()
		}
	}
	return t
}

// SelfSigned makes a certificate for this process.
func SelfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("listen: self-signed key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("listen: self-signed serial: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "grapevine"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(10, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"grapevine", "localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("listen: self-signed certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
