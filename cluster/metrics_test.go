package cluster_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
)

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := clustertest.NewHub()
		a, b := newReplica("a", h, cluster.ShareMesh), newReplica("b", h, cluster.ShareMesh)
		a.Start(t, "e1")
		b.Start(t, "e1")
		defer clustertest.Stop(t, a, b)
		a.Index.Reading("e1", true)
		a.Append("e1", 0)
		time.Sleep(2 * time.Second)
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(a)
		want := `
# HELP grapevine_cluster_deltas_total Deltas by verdict.
# TYPE grapevine_cluster_deltas_total counter
grapevine_cluster_deltas_total{from="local",verdict="already"} 0
grapevine_cluster_deltas_total{from="local",verdict="applied"} 1
grapevine_cluster_deltas_total{from="local",verdict="broken"} 0
grapevine_cluster_deltas_total{from="local",verdict="gap"} 0
grapevine_cluster_deltas_total{from="local",verdict="stale"} 0
grapevine_cluster_deltas_total{from="local",verdict="unknown"} 0
grapevine_cluster_deltas_total{from="peer",verdict="already"} 0
grapevine_cluster_deltas_total{from="peer",verdict="applied"} 0
grapevine_cluster_deltas_total{from="peer",verdict="broken"} 0
grapevine_cluster_deltas_total{from="peer",verdict="gap"} 0
grapevine_cluster_deltas_total{from="peer",verdict="stale"} 0
grapevine_cluster_deltas_total{from="peer",verdict="unknown"} 0
# HELP grapevine_cluster_members Members of the group, this one included.
# TYPE grapevine_cluster_members gauge
grapevine_cluster_members 2
# HELP grapevine_cluster_healthy 1 when the group is healthy, by state.
# TYPE grapevine_cluster_healthy gauge
grapevine_cluster_healthy{state="joined"} 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "grapevine_cluster_deltas_total",
			"grapevine_cluster_members", "grapevine_cluster_healthy"); err != nil {
			t.Error(err)
		}
		problems, err := testutil.GatherAndLint(reg)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}
