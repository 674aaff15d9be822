package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
)

// TestWriteUse checks how a cluster is shown whose link is live and whose gateway is down.
func TestWriteUse(t *testing.T) {
	var out strings.Builder
	writeUse(&out, nil)
	writeUse(&out, []remotecluster.Status{
		{Cluster: "tokyo", Result: "candidate", Gateways: 1, Sending: true, MissRate: .25},
		{Cluster: "oslo", Result: "failed of late", Gateways: 2, Endpoints: 3, Late: 120},
		{Cluster: "rome", Result: "candidate", Gateways: 1, Trial: true},
	})
	want := `
CLUSTER  REQUESTS             GATEWAYS  ENDPOINTS  LATE    DOUBT
tokyo    candidate, sending   1         0          0 ms    25%
oslo     failed of late       2         3          120 ms  0%
rome     candidate, on trial  1         0          0 ms    0%
`
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
}

// TestWriteHot checks that an incomplete list of hot prefixes is marked as such.
func TestWriteHot(t *testing.T) {
	st := &link.Status{Cluster: "a", Exports: []link.OwnStatus{{Pool: "ns/p", Hot: 7, HotNote: "partial: 2 prompts", Omitted: "3 of 259 groups of model and role"}, {Pool: "ns/q", Hot: 8}}}
	var out strings.Builder
	writeFederation(&out, st)
	for _, want := range []string{"ns/p    7 (partial: 2 prompts)", "not exported: 3 of 259 groups of model and role", "ns/q    8 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// TestWriteSecrets checks that the progress of a secret rotation is shown.
func TestWriteSecrets(t *testing.T) {
	st := &link.Status{
		Cluster: "a", Line: "fine", Secrets: []string{"01", "02"}, Problem: "no such file",
		Clusters: []link.ClusterStatus{{Name: "b", Pools: []link.PoolStatus{{Pool: "ns/p", Secret: "02"}}}, {Name: "c"}},
	}
	var out strings.Builder
	writeFederation(&out, st)
	if want := "a: fine\n2 secrets: 01, 02; filters by 02 (b ns/p)\nproblem: no such file\n\n"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
}

// TestHubOptions checks that members and pools are parsed and that errors name the flag.
func TestHubOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "current-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nclusters: [{name: x, cluster: {server: 'https://192.0.2.1:6443'}}]\nusers: [{name: x, user: {token: t}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	two := []string{"a=" + file, "b=" + file}
	for _, c := range []struct {
		members, pools  []string
		namespace, want string
	}{
		{two, []string{"ns/p", "ns/q"}, "ns", ""},
		{two, []string{"ns/p", "other/p"}, "", ""},
		{two[:1], []string{"ns/p"}, "", "at least two --member"},
		{two, nil, "", "--pool"},
		{[]string{"a=" + file, "a=" + file}, []string{"ns/p"}, "", "unique names"},
		{[]string{"a=" + file, "b"}, []string{"ns/p"}, "", "NAME=KUBECONFIG"},
		{[]string{"a=" + file, "b=" + file + "x"}, []string{"ns/p"}, "", "--member b"},
		{two, []string{"p"}, "", "namespace/name"},
	} {
		o, err := hubOptions(c.members, c.pools)
		switch {
		case c.want == "" && (err != nil || o.Namespace != c.namespace || len(o.Members) != 2 || o.Members["b"].Server == "" || len(o.Pools) != len(c.pools)):
			t.Errorf("%v %v: %+v, %v", c.members, c.pools, o, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v %v: %v, want %q", c.members, c.pools, err, c.want)
		}
	}
}
