package extproc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"sync"
	"time"
)

// reloadEvery bounds how often the files of a certificate are looked at.
const reloadEvery = time.Second

// TLS says how a listener is secured. The zero value serves a self-signed
// certificate made at start, which proxies accept when they do not verify.
type TLS struct {
	Plaintext bool   // no TLS at all
	CertFile  string // PEM; read anew when it changes
	KeyFile   string // PEM; read anew when it changes
}

// Config returns what a gRPC server needs, nil for plaintext. log is told of
// certificates that are read anew.
func (t TLS) Config(log *slog.Logger) (*tls.Config, error) { return t.config(log, time.Now) }

// config returns nil for plaintext.
func (t TLS) config(log *slog.Logger, now func() time.Time) (*tls.Config, error) {
	if t.Plaintext {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if t.CertFile == "" && t.KeyFile == "" {
		cert, err := selfSigned(now())
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{cert}
		return cfg, nil
	}
	f := &certFiles{cert: t.CertFile, key: t.KeyFile, log: log, now: now}
	if err := f.load(); err != nil {
		return nil, err
	}
	cfg.GetCertificate = f.get
	return cfg, nil
}

// certFiles serves a certificate from files and follows their changes at
// handshakes, without a goroutine.
type certFiles struct {
	cert, key string
	log       *slog.Logger
	now       func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	stamp   [2]time.Time // modification times that current was read at
	checked time.Time
}

// get returns the newest certificate that could be read.
func (f *certFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now().Sub(f.checked) < reloadEvery {
		return f.current, nil
	}
	f.checked = f.now()
	if stamp := f.modified(); stamp == f.stamp {
		return f.current, nil
	}
	if err := f.load(); err != nil {
		f.log.Warn("certificate not reloaded, serving the previous one", "error", err)
	} else {
		f.log.Info("certificate reloaded", "cert_file", f.cert)
	}
	return f.current, nil
}

func (f *certFiles) load() error {
	stamp := f.modified()
	cert, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return fmt.Errorf("extproc: certificate: %w", err)
	}
	f.current, f.stamp = &cert, stamp
	return nil
}

// modified returns when the files were written; the zero time for one that
// cannot be looked at.
func (f *certFiles) modified() (t [2]time.Time) {
	for i, name := range []string{f.cert, f.key} {
		if info, err := os.Stat(name); err == nil {
			t[i] = info.ModTime()
		}
	}
	return t
}

// selfSigned makes a certificate for this process.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("extproc: self-signed key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("extproc: self-signed serial: %w", err)
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
		return tls.Certificate{}, fmt.Errorf("extproc: self-signed certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
