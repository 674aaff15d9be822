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
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// testFederation runs the containers of the installed chart in two clusters, each with
// the rights that the chart grants there: an annotated pool is exported to both.
func testFederation(t *testing.T, a *kubekit.Cluster, binary string) {
	b := kubekit.Start(t, "inference")
	dir := t.TempDir()
	authority := certificates(t, dir, "a", "b")
	kits := map[string]*podkit.Kit{"a": podkit.Open(t, a, imagesOf(t, binary)), "b": podkit.Open(t, b, imagesOf(t, binary))}
	// Addresses of each cluster's load balancer.
	balancer := map[string]string{"a": podkit.NodeAddress(t), "b": podkit.NodeAddress(t)}
	pods := map[string]*podkit.Pod{}
	for name, c := range map[string]*kubekit.Cluster{"a": a, "b": b} {
		other := map[string]string{"a": "b", "b": "a"}[name]
		c.Namespace("federated")
		startEngine(t, c, "federated", "vllm-0")
		config := fmt.Sprintf("cluster: %[1]s\nsecretFile: secret\nlease: 2s\ndrain: 2s\nlisten: 0.0.0.0:7950\ncertFile: %[1]s.crt\nkeyFile: %[1]s.key\ncaFile: ca.crt\n"+
			"exports: [{pool: federated/llama, gateways: [{address: \"127.0.0.1:1\"}]}]\npeers: [{name: %[2]s, addresses: [\"%[3]s:7950\"], export: [\"federated/*\"], accept: [\"federated/*\"]}]\n",
			name, other, balancer[other])
		values := write(t, filepath.Join(dir, name+".values"), fmt.Appendf(nil, "{pool: {create: true, matchLabels: {app: vllm}}, federation: {enabled: true, config: %q, existingSecret: certs}}", config))
		c.Kubectl("create", "secret", "generic", "certs", "-n", "federated", "--from-file="+filepath.Join(dir, name+".crt"), "--from-file="+filepath.Join(dir, name+".key"),
			"--from-file=ca.crt="+write(t, filepath.Join(dir, "ca.crt"), authority), "--from-literal=secret="+base64.StdEncoding.EncodeToString(make([]byte, 32)))
		helm(t, c, "install", "llama", chart, "-n", "federated", "-f", values)
		kits[name].Expose("federated")
		kits[name].Balance("federated", "llama-epp-federation", balancer[name])
		pods[name] = kits[name].Deployment("federated", "llama-epp")
	}
	for _, p := range pods {
		p.WaitReady()
	}
	exported := func() string {
		return a.Kubectl("get", "inferencepools.inference.networking.k8s.io", "llama", "-n", "federated", "-o",
			`jsonpath={range .status.parents[*]}{.controllerName} {.parentRef.kind} {range .conditions[*]}{.type}={.status}/{.reason}{end}{end}`)
	}
	imported := func(c *kubekit.Cluster) string {
		out, err := c.Command("kubectl", "", "get", "inferencepoolimports", "--ignore-not-found", "llama", "-n", "federated", "-o", `jsonpath={range .status.controllers[*]}{.name} {range .exportingClusters[*]}{.name} {end}{end}`)
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(out)
	}
	const us = "grapevine-epp.github.io/federation"
	a.Kubectl("annotate", "inferencepools.inference.networking.k8s.io", "llama", "-n", "federated", "inference.networking.x-k8s.io/export=ClusterSet")
	a.Until("exported to both", func() bool { return exported() == us+" InferencePoolImport Exported=True/Exported" })
	for _, c := range []*kubekit.Cluster{a, b} {
		if got := imported(c); got != us+" a" {
			t.Errorf("an import has the status %q", got)
		}
	}
	out, err := pods["a"].Exec("epp", "/grapevine", "federation")
	for _, want := range []string{"import there", "Exported True, Exported", "exported to a, b"} {
		if err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("grapevine federation does not say %q: %v\n%s", want, err, out)
		}
	}
	if strings.Contains(out, "problem") {
		t.Errorf("there is something wrong:\n%s", out)
	}
	a.Kubectl("annotate", "inferencepools.inference.networking.k8s.io", "llama", "-n", "federated", "inference.networking.x-k8s.io/export-")
	a.Until("no entry any more", func() bool { return exported() == "" })
	b.Until("no import any more", func() bool { return imported(b) == "" })

	// helm deletes the service account and the rights while the pods still run.
	a.Kubectl("annotate", "inferencepools.inference.networking.k8s.io", "llama", "-n", "federated", "inference.networking.x-k8s.io/export=ClusterSet")
	b.Until("an import again", func() bool { return imported(b) == us+" a" })
	helm(t, a, "uninstall", "llama", "-n", "federated")
	if err := pods["a"].Terminate(); err != nil {
		t.Errorf("the pod of a ended with %v", err)
	}
	a.Until("no import in the uninstalled cluster", func() bool {
		a.CollectGarbage(kubeapi.Resource{Group: "inference.networking.x-k8s.io", Version: "v1alpha1", Plural: "inferencepoolimports"}, "federated")
		return imported(a) == ""
	})
	b.Until("no import after the drain time and two leases", func() bool { return imported(b) == "" })
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
