package plugin

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// PageTLS are the certificates of metrics pages that are read over TLS. Paths are
// of PEM files; "" for the system's authorities, and for showing no certificate.
type PageTLS struct {
	SkipVerify    bool // accept any certificate
	CA, Cert, Key string
}

// Config reads the authorities, and sees that the certificate to show can be read.
// That one is read again for every connection, so that it may be renewed. An error
// names the file.
func (p PageTLS) Config() (*tls.Config, error) {
	c := &tls.Config{InsecureSkipVerify: p.SkipVerify, MinVersion: tls.VersionTLS12} //nolint:gosec // where the user's file says so
	if p.CA != "" && !p.SkipVerify {
		data, err := os.ReadFile(p.CA)
		if err != nil {
			return nil, fmt.Errorf("authorities of metrics pages: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("authorities of metrics pages: no certificate in %s", p.CA)
		}
	}
	if p.Cert != "" {
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
			return &pair, err
		}
		if _, err := load(nil); err != nil {
			return nil, fmt.Errorf("certificate for metrics pages: %w", err)
		}
		c.GetClientCertificate = load
	}
	return c, nil
}
