package main

import (
	"strings"
	"testing"

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
