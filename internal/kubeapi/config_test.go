package kubeapi

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("ca.crt", "CA")
	users := func(user string) string {
		return `{current-context: c, clusters: [{name: k, cluster: {server: "https://h:1/", certificate-authority: ca.crt, tls-server-name: sni}}],
			contexts: [{name: other}, {name: c, context: {cluster: k, user: u, namespace: ns}}], users: [{name: u, user: ` + user + `}]}`
	}
	got, err := Kubeconfig(write("good", users(`{token: t, client-certificate-data: eA==, tokenFile: tok}`)))
	want := Config{Server: "https://h:1", Namespace: "ns", CA: []byte("CA"), ServerName: "sni", Token: "t", TokenFile: filepath.Join(dir, "tok"), Cert: []byte("x")}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for name, content := range map[string]string{
		"program":    users(`{exec: {command: aws}}`),
		"no-context": `{current-context: x}`,
		"no-server":  `{current-context: c, contexts: [{name: c, context: {cluster: k}}]}`,
		"no-file":    users(`{client-key: absent}`),
		"no-base64":  users(`{client-key-data: "?"}`),
		"no-yaml":    `{`,
	} {
		if c, err := Kubeconfig(write(name, content)); err == nil {
			t.Errorf("%s: accepted as %+v", name, c)
		}
	}
}

func TestInCluster(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{}
	if _, err := inCluster(func(k string) string { return env[k] }, dir); !errors.Is(err, ErrNowhere) {
		t.Errorf("outside of a pod: %v", err)
	}
	env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"] = "fd00::1", "443"
	if _, err := inCluster(func(k string) string { return env[k] }, dir); err == nil {
		t.Error("pod without a service account was accepted")
	}
	for _, name := range []string{"token", "ca.crt", "namespace"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := inCluster(func(k string) string { return env[k] }, dir)
	if err != nil || c.Server != "https://[fd00::1]:443" || c.Namespace != "namespace" || string(c.CA) != "ca.crt\n" {
		t.Errorf("in a pod: %+v, %v", c, err)
	}
}

// TestEmptyAuthority: an empty CA file, as during a write, is an error and does not fall back to
// the system's CAs.
func TestEmptyAuthority(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if ca, err := dataOrFile("", path, ""); err == nil {
		t.Errorf("CA of %d bytes was accepted", len(ca))
	}
}
