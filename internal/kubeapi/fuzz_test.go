package kubeapi

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzKubeconfig reads arbitrary files as a kubeconfig.
func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte("current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u, namespace: n}}]\nclusters: [{name: k, cluster: {server: \"https://k:6443\"}}]\nusers: [{name: u, user: {token: t}}]\n"))
	f.Add([]byte("{"))
	f.Add([]byte("a: &a [*a]\n"))
	dir := f.TempDir() // files that it names are read from there
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, data []byte) {
		if _, err := parseKubeconfig(data, dir); err == nil && len(data) == 0 {
			t.Fatal("an empty file was accepted as a kubeconfig")
		}
	})
}
