package stream

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

var errFingerprint = errors.New("stream: certificate is not the member's")

// errFormer refuses a removed member. It is no evidence of a stranger, so it does not count.
var errFormer = errors.New("stream: certificate of a member that was removed")

// selfSigned makes a certificate for this process. Peers ignore its name and dates and check only
// its fingerprint.
func selfSigned(name string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("stream: making a key: %w", err)
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.AddDate(-1, 0, 0),
		NotAfter:     now.AddDate(10, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("stream: making a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func fingerprintOf(cs tls.ConnectionState) (Fingerprint, bool) {
	if len(cs.PeerCertificates) == 0 {
		return Fingerprint{}, false
	}
	return sha256.Sum256(cs.PeerCertificates[0].Raw), true
}

// identity is this member's certificate and the roots that must have signed the peers'
// certificates.
type identity struct {
	cert  *tls.Certificate
	roots *x509.CertPool // nil: no signature required
}

// SetCertificate replaces the certificate and the roots for new streams. Existing streams stay.
// Peers reject new streams until they have the new Fingerprint.
func (s *Streams) SetCertificate(cert *tls.Certificate, roots *x509.CertPool) {
	s.identity.Store(&identity{cert, roots})
}

// serverTLS accepts the certificate of any member. The hello must then name the matching member.
func (s *Streams) serverTLS() *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.identity.Load().cert, nil },
		ClientAuth:     tls.RequireAnyClientCert,
		VerifyConnection: func(cs tls.ConnectionState) error {
			fp, ok := fingerprintOf(cs)
			switch {
			case ok && s.knows(fp):
			case ok && s.knew(fp):
				return errFormer
			default:
				return errFingerprint
			}
			return s.verifyRoots(cs)
		},
	}
	return c
}

// clientTLS accepts only p's certificate.
func (s *Streams) clientTLS(p *peer) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.identity.Load().cert, nil },
		// verifyRoots checks the chain if there are roots. The fingerprint identifies one
		// certificate, which is stricter than a name.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if fp, ok := fingerprintOf(cs); !ok || fp != p.pinned() {
				s.refuse(RefusedIdentity)
				return errFingerprint
			}
			return s.verifyRoots(cs)
		},
	}
}

func (s *Streams) verifyRoots(cs tls.ConnectionState) error {
	roots := s.identity.Load().roots
	if roots == nil {
		return nil
	}
	inter := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		inter.AddCert(c)
	}
	_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: inter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}

// countingCreds counts failed handshakes by reason.
type countingCreds struct {
	credentials.TransportCredentials
	s *Streams
}

// ServerHandshake implements credentials.TransportCredentials.
func (c countingCreds) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	out, info, err := c.TransportCredentials.ServerHandshake(conn)
	var record tls.RecordHeaderError
	switch {
	case err == nil, errors.Is(err, context.Canceled):
	case errors.As(err, &record):
		c.s.refuse(RefusedPlaintext)
	case errors.Is(err, errFingerprint):
		c.s.refuse(RefusedIdentity)
	}
	return out, info, err
}

// Clone implements credentials.TransportCredentials.
func (c countingCreds) Clone() credentials.TransportCredentials {
	return countingCreds{c.TransportCredentials.Clone(), c.s}
}
