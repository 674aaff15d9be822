package wan

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Files that [Authorize] writes in addition to NAME.crt and NAME.key of each cluster.
const (
	CAFile     = "ca.crt"
	SecretFile = "secret"
)

// Authorize writes a certificate authority that is valid for a day, a certificate and key per
// cluster, and a federation secret into a folder.
func Authorize(dir string, names ...string) error {
	var authority *x509.Certificate
	var signer *ecdsa.PrivateKey
	for i, name := range append([]string{"ca"}, names...) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		c := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(24 * time.Hour),
			BasicConstraintsValid: true, IsCA: i == 0, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		if i == 0 {
			authority, signer = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, authority, key.Public(), signer)
		if err != nil {
			return err
		}
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return err
		}
		for ext, b := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
			if err := os.WriteFile(filepath.Join(dir, name+ext), pem.EncodeToMemory(b), 0o600); err != nil {
				return err
			}
		}
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, SecretFile), []byte(base64.StdEncoding.EncodeToString(secret)+"\n"), 0o600)
}
