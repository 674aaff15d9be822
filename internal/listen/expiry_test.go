package listen

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"
)

// TestCertificateExpiry ages a certificate and replaces it.
func TestCertificateExpiry(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	made := func(end time.Time) *tls.Certificate {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}
		der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Certificate{Certificate: [][]byte{der}}
	}
	cert := made(now.Add(30 * 24 * time.Hour))
	var log bytes.Buffer
	e := &Expiry{
		conf: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil }},
		log:  slog.New(slog.NewTextHandler(&log, nil)), now: func() time.Time { return now },
	}
	for _, step := range []struct {
		days int
		want string
	}{{0, ""}, {25, "WARN"}, {0, ""}, {6, "ERROR"}, {1, ""}} {
		log.Reset()
		now = now.AddDate(0, 0, step.days)
		if end := e.look(); end.IsZero() || (step.want == "") != (log.Len() == 0) || !strings.Contains(log.String(), step.want) {
			t.Errorf("after %d more days: %v, %q", step.days, end, log.String())
		}
	}
	cert = made(now.AddDate(1, 0, 0))
	log.Reset()
	if e.look(); log.Len() > 0 {
		t.Errorf("a new certificate: %s", log.String())
	}
	none := &Expiry{conf: &tls.Config{}, now: time.Now}
	if !none.look().IsZero() {
		t.Error("no certificate ends")
	}
}
