package link

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writeIdentity writes a certificate that signs itself as cert, key and ca of a folder, and returns its
// DER bytes.
func writeIdentity(t *testing.T, dir, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: cert}, "ca": {Type: "CERTIFICATE", Bytes: cert}, "key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert
}

// TestRenewedIdentity checks that renewed files are read after lookPause, unchanged ones are not read
// again, and unreadable ones leave the last identity in use.
func TestRenewedIdentity(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	first := writeIdentity(t, dir, "first")
	i := &identity{cert: at("cert"), key: at("key"), ca: at("ca")}
	now := time.Now()
	serves := func(when string, want []byte) {
		t.Helper()
		pair, roots, err := i.load(now)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(pair.Certificate[0], want) {
			t.Errorf("%s: load() returned another certificate", when)
		}
		known, err := x509.ParseCertificate(want)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := known.Verify(x509.VerifyOptions{Roots: roots}); err != nil {
			t.Errorf("%s: load() returned other roots: %v", when, err)
		}
	}
	serves("at the start", first)
	pair := i.pair
	now = now.Add(lookPause)
	serves("unchanged", first)
	if i.pair != pair {
		t.Error("unchanged files were read again")
	}
	second := writeIdentity(t, dir, "second, with a longer name")
	serves("within the pause", first)
	now = now.Add(lookPause)
	serves("renewed", second)
	if err := os.WriteFile(at("key"), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(lookPause)
	serves("broken", second)
	if i.err == nil {
		t.Error("a broken file is not reported")
	}
	third := writeIdentity(t, dir, "third")
	now = now.Add(lookPause)
	serves("repaired", third)
	if i.err != nil {
		t.Errorf("a repaired file is reported: %v", i.err)
	}
	i = &identity{cert: at("cert"), key: at("missing"), ca: at("ca")}
	if _, _, err := i.load(now); err == nil {
		t.Error("load() without a key returned no error")
	}
}
