package multicluster

import (
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/kube"
)

// TestSettled: missing announcements do not count as withdrawn.
func TestSettled(t *testing.T) {
	key := federation.PoolKey{Namespace: "prod", Name: "llama"}
	exports := &kube.Local{Exports: []kube.Export{{Name: kube.Name{Namespace: "prod", Name: "llama"}}}}
	view := func(cluster, told federation.State, owns int) *federation.View {
		v := &federation.View{Clusters: []*federation.Cluster{{Name: "b", State: cluster}}}
		for range owns {
			v.Exports = append(v.Exports, federation.ExportView{Pool: key, Acks: []federation.ExportAck{{Cluster: "b", State: told}}})
		}
		return v
	}
	for _, tc := range []struct {
		name  string
		v     *federation.View
		local *kube.Local
		want  bool
	}{
		{"objects are not read", view(federation.Live, federation.Live, 1), nil, false},
		{"all is known", view(federation.Live, federation.Live, 1), exports, true},
		{"a cluster is not heard", view(federation.Silent, federation.Silent, 1), exports, false},
		{"its word on our export is missing", view(federation.Live, federation.Silent, 1), exports, false},
		{"it refuses", view(federation.Live, federation.Refused, 1), exports, true},
		{"our export is not told yet", view(federation.Live, federation.Live, 0), exports, false},
		{"nothing is exported", view(federation.Live, federation.Live, 0), &kube.Local{}, true},
	} {
		if got := settled(tc.v, tc.local); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}
