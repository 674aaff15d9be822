//go:build kube

package deploy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// testFederation runs the containers of the installed chart in two clusters, each with
// the rights that the chart grants there: an annotated pool is exported to both.
func testFederation(t *testing.T, a *kubekit.Cluster, binary string) {
	b := kubekit.Start(t, "inference")
	b.Namespace("prod")
	dir, listen := t.TempDir(), map[string]string{"a": free(t), "b": free(t)}
	authority := certificates(t, dir, "a", "b")
	write(t, filepath.Join(dir, "ca.crt"), authority)
	write(t, filepath.Join(dir, "secret"), []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))))
	admin := map[string]string{}
	for name, c := range map[string]*kubekit.Cluster{"a": a, "b": b} {
		other := map[string]string{"a": "b", "b": "a"}[name]
		config := fmt.Sprintf("cluster: %[1]s\nsecretFile: secret\nlisten: %[2]s\ncertFile: %[1]s.crt\nkeyFile: %[1]s.key\ncaFile: ca.crt\n"+
			"exports: [{pool: prod/llama, gateways: [{address: \"127.0.0.1:1\"}]}]\npeers: [{name: %[3]s, addresses: [\"%[4]s\"], export: [\"prod/*\"], accept: [\"prod/*\"]}]\n",
			name, listen[name], other, listen[other])
		values := write(t, filepath.Join(dir, name+".values"), fmt.Appendf(nil, "{pool: {create: true, matchLabels: {app: vllm}}, federation: {enabled: true, config: %q, existingSecret: certs}}", config))
		helm(t, c, "upgrade", "--install", "llama", chart, "-n", "prod", "--take-ownership", "-f", values)
		// What a kubelet would mount: the file and the Secret's entries in one folder.
		write(t, filepath.Join(dir, "federation.yaml"), []byte(c.Kubectl("get", "configmap", "llama-epp-federation", "-n", "prod", "-o", `go-template={{index .data "federation.yaml"}}`)))
		if err := os.Rename(filepath.Join(dir, "federation.yaml"), filepath.Join(dir, name+".yaml")); err != nil {
			t.Fatal(err)
		}
		at, _, args := container(t, c, "llama-epp")
		for i := range args {
			args[i] = strings.Replace(args[i], "/etc/grapevine/federation/federation.yaml", filepath.Join(dir, name+".yaml"), 1)
		}
		admin[name] = at
		run(t, c, binary, "llama-epp", append(args, "--ready-timeout=1s"))
	}
	exported := func() string {
		return a.Kubectl("get", "inferencepools.inference.networking.k8s.io", "llama", "-n", "prod", "-o",
			`jsonpath={range .status.parents[*]}{.controllerName} {.parentRef.kind} {range .conditions[*]}{.type}={.status}/{.reason}{end}{end}`)
	}
	imported := func(c *kubekit.Cluster) string {
		out, _ := c.Command("kubectl", "", "get", "inferencepoolimports", "llama", "-n", "prod", "-o", `jsonpath={range .status.controllers[*]}{.name} {range .exportingClusters[*]}{.name} {end}{end}`)
		return strings.TrimSpace(out)
	}
	const us = "grapevine-epp.github.io/federation"
	a.Kubectl("annotate", "inferencepools.inference.networking.k8s.io", "llama", "-n", "prod", "inference.networking.x-k8s.io/export=ClusterSet")
	a.Until("exported to both", func() bool { return exported() == us+" InferencePoolImport Exported=True/Exported" })
	for _, c := range []*kubekit.Cluster{a, b} {
		if got := imported(c); got != us+" a" {
			t.Errorf("an import says %q", got)
		}
	}
	out, err := exec.Command(binary, "federation", "--admin", admin["a"]).CombinedOutput()
	for _, want := range []string{"import there", "Exported True, Exported", "exported to a, b"} {
		if err != nil || !strings.Contains(strings.Join(strings.Fields(string(out)), " "), want) {
			t.Errorf("grapevine federation does not say %q: %v\n%s", want, err, out)
		}
	}
	if strings.Contains(string(out), "problem") {
		t.Errorf("there is something wrong:\n%s", out)
	}
	a.Kubectl("annotate", "inferencepools.inference.networking.k8s.io", "llama", "-n", "prod", "inference.networking.x-k8s.io/export-")
	a.Until("no entry any more", func() bool { return exported() == "" })
}

func write(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificates writes NAME.crt and NAME.key of clusters, each signed by itself, and
// returns all certificates.
func certificates(t *testing.T, dir string, names ...string) (all []byte) {
	t.Helper()
	for i, name := range names {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 1)), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true, IsCA: true}
		der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		write(t, filepath.Join(dir, name+".crt"), public)
		write(t, filepath.Join(dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
		all = append(all, public...)
	}
	return all
}
