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

// reloadEvery is the minimum interval between checks of certificate files.
const reloadEvery = time.Second

// TLS configures a listener's TLS. The zero value uses a self-signed certificate made at startup,
// for proxies that do not verify.
type TLS struct {
	Plaintext bool   // disables TLS
	CertFile  string // PEM; reloaded on change
	KeyFile   string // PEM; reloaded on change

	// ClientCA is a PEM file with the CAs of proxies' certificates; reloaded on change. If set,
	// proxies without a certificate of these CAs are rejected.
	ClientCA string
	// ClientNames are the accepted URI (SPIFFE) or DNS names in a proxy's certificate; empty
	// accepts any that ClientCA signed.
	ClientNames []string
	// Min is the minimum version, "1.2" or "1.3"; "" means 1.2.
	Min string
}

// Errors of TLS settings.
var (
	errMinVersion  = errors.New("listen: TLS: the minimum version must be 1.2 or 1.3")
	errClientCA    = errors.New("listen: TLS: the client CA file contains no certificate")
	errClientNeeds = errors.New("listen: TLS: client certificates require TLS, and client names require a client CA")
	errClientName  = errors.New("listen: TLS: the client certificate has none of the accepted names")
)

// versions are the values of TLS.Min.
var versions = map[string]uint16{"": tls.VersionTLS12, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Credentials returns gRPC server credentials, TLS or plaintext, with paced connections (see
// [Pacing]). paced counts waiting connections, by the listener's name.
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

// Config returns a TLS configuration for HTTP/2, or nil for plaintext. Certificate reloads are
// logged to log.
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

// clients makes cfg require client certificates if a client CA is configured.
func (t TLS) clients(cfg *tls.Config, log *slog.Logger, now func() time.Time) error {
	if t.ClientCA == "" {
		return nil
	}
	f := &watched[x509.CertPool]{what: "client authorities", files: []string{t.ClientCA}, log: log, now: now}
	f.read = func() (*x509.CertPool, error) {
		pem, err := os.ReadFile(t.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("listen: client CA: %w", err)
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
	// Verify the chain here instead of in the configuration, so that new CAs apply from the next
	// handshake on.
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

// CertificateNames returns a certificate's SPIFFE and DNS names.
func CertificateNames(leaf *x509.Certificate) (names []string) {
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	return append(names, leaf.DNSNames...)
}

// watched is a value read from files. It is reloaded on use after a change, without a goroutine.
type watched[T any] struct {
	what  string
	files []string
	read  func() (*T, error)
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex
	current *T
	stamp   []time.Time // modification times of current
	checked time.Time
	loading bool // a caller of get is checking the files
}

// get returns the latest readable value. One caller at a time checks the files while others get the
// current value, so that a hanging disk blocks only one handshake.
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

// modified returns the files' modification times; zero for an unreadable one.
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
