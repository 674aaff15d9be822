package commands

import (
	"bytes"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker/gauge"
)

// TestEndpointsAsPrinted checks that unknown values are not shown as 0 and that each problem is
// printed once with its reason, for all endpoints that have it.
func TestEndpointsAsPrinted(t *testing.T) {
	well := server.HealthStatus{State: "healthy", Share: 1}
	dead := server.HealthStatus{
		State: "out", SinceS: 12.3, Cause: "refused", Evidence: "connections are refused", BackBy: "accepted connections, then 3 passed probes in a row",
	}
	doubted := server.HealthStatus{
		State: "suspect", SinceS: 2, Share: 0.01, Cause: "failed", Evidence: "3 answers with status 500 or above, or with an error in them", Overruled: true,
	}
	partly := server.HealthStatus{State: "healthy", Share: 1, FullS: 2.25, AvoidedModels: []string{"poet", "sql"}}
	read := []server.StreamStatus{{Events: "tcp://10.0.0.1:5557"}}
	no404 := "scrape: answer 404"
	eps := []server.EndpointStatus{
		{Address: "a:1", Name: "a", Up: true, Health: well, Knowledge: "exact", LagMS: 1.5, Blocks: 7, InFlight: 2, Values: gauge.Values{Waiting: 1, Running: 3, KVUse: .5}, Streams: read, PredictedS: .25, ObservedS: .5},
		{Address: "b:1", Name: "b", Up: true, Health: well, Knowledge: "approximate", GaugeAgeS: -1, GaugesError: no404},
		{Address: "c:1", Name: "c", Up: true, Health: well, Knowledge: "approximate", GaugeAgeS: -1, GaugesError: no404},
		{Address: "d:1", Name: "d", Up: true, Health: well, Knowledge: "approximate", GaugeAgeS: -1, GaugesError: no404},
		{Address: "e:1", Name: "e", Up: true, Health: well, Knowledge: "approximate", GaugeAgeS: -1, GaugesError: no404},
		{Address: "f:1", Name: "f", Health: dead, Knowledge: "approximate", Values: gauge.Values{Waiting: 4}, GaugeAgeS: 14},
		{Address: "g:1", Name: "g", Up: true, Health: doubted, Knowledge: "mismatched", Reason: "another template", Streams: read, AgeMS: 2100},
		{Address: "h:1", Name: "h", Health: well, Knowledge: "approximate", GaugeAgeS: -1},
		{Address: "i:1", Name: "i", Up: true, Health: partly, Knowledge: "approximate", GaugeAgeS: -1},
	}
	const want = `
ENDPOINT  NAME  HEALTH         KNOWLEDGE                       LAG     BLOCKS  IN FLIGHT  WAITING  RUNNING  KV USE  PREDICTED  OBSERVED
a:1       a     healthy        exact                           1.5 ms  7       2          1        3        50%     0.250 s    0.500 s
b:1       b     healthy        approximate                     -       -       0          -        -        -       -          -
c:1       c     healthy        approximate                     -       -       0          -        -        -       -          -
d:1       d     healthy        approximate                     -       -       0          -        -        -       -          -
e:1       e     healthy        approximate                     -       -       0          -        -        -       -          -
f:1       f     out, 0%        approximate                     -       -       0          -        -        -       -          -
g:1       g     suspect, used  mismatched, up to 2.1 s behind  0.0 ms  0       0          0        0        0%      -          -
h:1       h     down           approximate                     -       -       0          -        -        -       -          -
i:1       i     healthy        approximate                     -       -       0          -        -        -       -          -
b:1, c:1, d:1 and 1 more (no gauges): scrape: answer 404
f:1 (out): connections are refused, for 12s; back by accepted connections, then 3 passed probes in a row
g:1 (suspect): 3 answers with status 500 or above, or with an error in them, for 2s; ignored, because it applies to most of the pool
g:1 (mismatched): another template
i:1 (full): engine rejected a request for lack of capacity, avoided for another 2.2 s
i:1 (fails models): poet, sql: avoided here, because their requests fail while other models are answered
`
	var b bytes.Buffer
	writeEndpoints(&b, eps, false)
	if diff := gocmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}
