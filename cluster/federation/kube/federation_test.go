package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/cluster/federation"
)

// TestViewOf checks the conversion of a federation's view.
func TestViewOf(t *testing.T) {
	key := federation.PoolKey{Namespace: "prod", Name: "llama"}
	remote := func(s federation.State) []*federation.Remote {
		return []*federation.Remote{{Export: &federation.Export{Pool: key}, State: s}}
	}
	v := &federation.View{Self: "a",
		Clusters: []*federation.Cluster{
			{Name: "b", State: federation.Live, Pools: remote(federation.Live)},
			{Name: "c", State: federation.Live, Pools: remote(federation.Draining)},
			{Name: "d", State: federation.Live, Pools: remote(federation.Refused)},
			{Name: "e", State: federation.Silent, Pools: remote(federation.Silent)},
			{Name: "f", State: federation.Refused},
		},
		Exports: []federation.ExportView{{Pool: key, Acks: []federation.ExportAck{
			{Cluster: "b", State: federation.Live, Shown: federation.IsShown, ShownReason: "of others"},
			{Cluster: "c", State: federation.Live, Shown: federation.NotShown, ShownReason: "no room"},
			{Cluster: "d", State: federation.Refused, Reason: "not accepted here"},
			{Cluster: "e", State: federation.Silent},
			{Cluster: "f", State: federation.Live, Shown: federation.NoObjects},
		}}},
	}
	want := View{Cluster: "a", Settled: true, Members: []Member{
		{Cluster: "b", Exports: []Export{{Name: llama}}, Holds: []FoundImport{{Name: llama, Clusters: []string{"a"}}}},
		{Cluster: "c", Exports: []Export{{Name: llama, Draining: true}}, Holds: []FoundImport{{Name: llama, Problem: "no room"}}},
		{Cluster: "d", Holds: []FoundImport{{Name: llama, Problem: "refused: not accepted here"}}},
		{Cluster: "e", Silent: true, Reason: "silent", Holds: []FoundImport{{Name: llama}}},
		{Cluster: "f", Silent: true, Reason: "refused", Holds: []FoundImport{{Name: llama, Clusters: []string{"a"}}}},
	}}
	if diff := cmp.Diff(want, ViewOf(v, true)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	l := Local{Exports: []Export{{Name: llama, Draining: true}}, Holds: []FoundImport{{llama, []string{"a", "b"}, "x"}}}
	if diff := cmp.Diff([]federation.Import{{Pool: key, Clusters: []string{"a", "b"}, Reason: "x"}}, l.Imports()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if exported, draining := l.Exported(key); !exported || !draining {
		t.Error("the pool is not draining")
	}
	if exported, _ := l.Exported(federation.PoolKey{Name: "x"}); exported {
		t.Error("pool without an annotation is exported")
	}
}
