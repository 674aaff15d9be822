package link

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// identity is this cluster's certificate and trusted CAs, reloaded when the files change.
type identity struct {
	cert, key, ca string

	mu    sync.Mutex
	at    time.Time // when the files were last checked
	stamp string
	pair  *tls.Certificate
	roots *x509.CertPool
	err   error // of the last check; the previous content stays in use
}

// lookPause is the time between checks of the files.
const lookPause = 5 * time.Second

func openIdentity(cert, key, ca string) (*identity, error) {
	i := &identity{cert: cert, key: key, ca: ca}
	_, _, err := i.load(time.Now())
	return i, err
}

// load returns the certificate and roots from the files, or those last read if the files cannot be
// read.
func (i *identity) load(now time.Time) (*tls.Certificate, *x509.CertPool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pair != nil && now.Sub(i.at) < lookPause {
		return i.pair, i.roots, nil
	}
	i.at = now
	stamp := ""
	for _, f := range []string{i.cert, i.key, i.ca} {
		if st, err := os.Stat(f); err == nil {
			stamp += fmt.Sprint(st.ModTime().UnixNano(), st.Size(), " ")
		}
	}
	if i.pair != nil && stamp == i.stamp {
		return i.pair, i.roots, nil
	}
	pair, roots, err := readIdentity(i.cert, i.key, i.ca)
	if i.err = err; err == nil {
		i.pair, i.roots, i.stamp = pair, roots, stamp
	}
	if i.pair == nil {
		return nil, nil, err
	}
	return i.pair, i.roots, nil
}

func readIdentity(cert, key, ca string) (*tls.Certificate, *x509.CertPool, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, nil, fmt.Errorf("federation: %w", err)
	}
	b, err := os.ReadFile(ca)
	if err != nil {
		return nil, nil, fmt.Errorf("federation: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(b) {
		return nil, nil, fmt.Errorf("federation: %s contains no certificate", ca)
	}
	return &pair, roots, nil
}

var (
	errNoCertificate = errors.New("no certificate was presented")
	errName          = errors.New("the certificate belongs to another cluster")
	errOwnName       = errors.New("the certificate has this cluster's own name: the address leads back here, or the other cluster has a copy of this cluster's files")
)

// verify checks a chain against the current roots and returns the certificate's names. Host names
// are not checked, because a cluster is identified by its own name.
func (i *identity) verify(cs tls.ConnectionState, usage x509.ExtKeyUsage) (names []string, err error) {
	if len(cs.PeerCertificates) == 0 {
		return nil, errNoCertificate
	}
	_, roots, err := i.load(time.Now())
	if err != nil {
		return nil, err
	}
	inter := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		inter.AddCert(c)
	}
	leaf := cs.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		return nil, err
	}
	names = slices.Clone(leaf.DNSNames)
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	return names, nil
}

// server accepts any certificate signed by the CA. The cluster is looked up after the handshake.
func (i *identity) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, ClientAuth: tls.RequireAnyClientCert,
		SessionTicketsDisabled: true, // check the certificate on each connection
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, _, err := i.load(time.Now())
			return pair, err
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := i.verify(cs, x509.ExtKeyUsageClientAuth)
			return err
		},
	}
}

// client accepts the certificate of one cluster.
func (i *identity) client(name, host string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, ServerName: host,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, _, err := i.load(time.Now())
			return pair, err
		},
		// verify checks the chain against the current roots. The expected name is the cluster's,
		// not the host's.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			names, err := i.verify(cs, x509.ExtKeyUsageServerAuth)
			if err == nil && !slices.Contains(names, name) {
				err = fmt.Errorf("%w: it has %q, want %q", i.wrongName(names), names, name)
			}
			return err
		},
	}
}

// wrongName returns the error for a certificate with an unexpected name. This cluster's own name
// has a different remedy.
func (i *identity) wrongName(names []string) error {
	own, _, err := i.load(time.Now())
	if err == nil && own.Leaf != nil && slices.ContainsFunc(own.Leaf.DNSNames, func(n string) bool { return slices.Contains(names, n) }) {
		return errOwnName
	}
	return errName
}
