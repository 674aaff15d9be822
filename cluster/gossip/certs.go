package gossip

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"
)

// certFiles reads a certificate and the group's certificate authority from files.
type certFiles struct {
	cert, key, ca string
	last          [3][]byte // contents when last read
}

// read returns the contents of the files, or nothing if no files are configured, and whether they
// changed since the last read. A certificate that does not match its key or CA is an error,
// reported once.
func (f *certFiles) read() (cert *tls.Certificate, roots *x509.CertPool, changed bool, err error) {
	if f.cert == "" {
		return nil, nil, false, nil
	}
	var now [3][]byte
	for i, name := range []string{f.cert, f.key, f.ca} {
		if name == "" {
			continue
		}
		if now[i], err = os.ReadFile(name); err != nil {
			return nil, nil, false, fmt.Errorf("gossip: %w", err)
		}
		changed = changed || !bytes.Equal(now[i], f.last[i])
	}
	if !changed {
		return nil, nil, false, nil
	}
	f.last = now
	cert, roots, err = f.parse()
	return cert, roots, err == nil, err
}

func (f *certFiles) parse() (*tls.Certificate, *x509.CertPool, error) {
	cert, err := tls.X509KeyPair(f.last[0], f.last[1])
	if err != nil {
		return nil, nil, fmt.Errorf("gossip: %s and %s: %w", f.cert, f.key, err)
	}
	if f.ca == "" {
		return &cert, nil, nil
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(f.last[2]) {
		return nil, nil, fmt.Errorf("gossip: %s contains no certificate", f.ca)
	}
	between.AppendCertsFromPEM(f.last[0])
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return nil, nil, fmt.Errorf("gossip: %s is not valid for %s, so other members would reject it: %w", f.cert, f.ca, err)
	}
	return &cert, roots, nil
}

// recertify watches the files. New streams use the new certificate, and the other members receive
// its fingerprint. Existing streams continue.
func (b *Bus) recertify(ctx context.Context) {
	t := time.NewTicker(b.opt.CertCheck)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		cert, roots, changed, err := b.files.read()
		if err != nil {
			b.opt.Logger.Warn("certificate reload failed, keeping the previous one", "error", err)
			continue
		}
		if !changed {
			continue
		}
		b.streams.SetCertificate(cert, roots)
		m := *b.meta.Load()
		m.Fingerprint = b.streams.Fingerprint()
		b.meta.Store(&m)
		if err := b.list.UpdateNode(2 * time.Second); err != nil {
			b.opt.Logger.Warn("announcing the new certificate failed", "error", err)
		}
		b.opt.Logger.Info("certificate reloaded", "cert_file", b.opt.CertFile, "not_after", cert.Leaf.NotAfter)
	}
}
