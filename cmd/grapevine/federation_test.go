package main

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/picker/elsewhere"
)

// TestWriteUse: a cluster whose link is live and whose gateway is not is shown as that.
func TestWriteUse(t *testing.T) {
	var out strings.Builder
	writeUse(&out, nil)
	writeUse(&out, []elsewhere.Status{
		{Cluster: "tokyo", Result: "candidate", Gateways: 1, Sending: true, Doubt: .25},
		{Cluster: "oslo", Result: "failed of late", Gateways: 2, Endpoints: 3, Late: 120},
	})
	want := `
CLUSTER  REQUESTS            GATEWAYS  ENDPOINTS  LATE    DOUBT
tokyo    candidate, sending  1         0          0 ms    25%
oslo     failed of late      2         3          120 ms  0%
`
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
}

// TestWriteSecrets: while the secret is exchanged, it is shown how far that has come.
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
