package plugin

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// PageTLS configures TLS for reading metrics pages. Paths are PEM files; "" means the system's CAs,
// and no client certificate.
type PageTLS struct {
	SkipVerify    bool // accept any certificate
	CA, Cert, Key string
}

// Config reads the CAs and checks that the client certificate is readable. The certificate is
// reread for every connection, so it may be renewed. An error names the file.
func (p PageTLS) Config() (*tls.Config, error) {
	c := &tls.Config{InsecureSkipVerify: p.SkipVerify, MinVersion: tls.VersionTLS12} //nolint:gosec // where the user's file says so
	if p.CA != "" && !p.SkipVerify {
		data, err := os.ReadFile(p.CA)
		if err != nil {
			return nil, fmt.Errorf("CA of metrics pages: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("CA of metrics pages: %s contains no certificate", p.CA)
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
