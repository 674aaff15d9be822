package kube

import (
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
)

// TestObjectsAreReadWhole: every field that a plan uses is read from the API server's objects.
func TestObjectsAreReadWhole(t *testing.T) {
	r := reader{DefaultController}
	since := time.Unix(1_700_000_000, 0).UTC()
	entry := parentOf(DefaultController, Name{"ns", "p"}, condition{typeExported, "True", "Exported", "message", 3, since})
	for _, name := range fields.Unset(*entry) {
		t.Errorf("parentOf().%s is not set", name)
	}
	if !entry.whole(DefaultController, Name{"ns", "p"}) || entry.Ref.Namespace != "ns" || entry.Ref.Name != "p" {
		t.Errorf("parentOf() = %+v, want the reference of ns/p", entry)
	}
	meta := map[string]any{
		"namespace": "ns", "name": "p", "uid": "uid-1", "resourceVersion": "5", "generation": 3, "deletionTimestamp": since,
		"annotations": map[string]string{Annotation: ClusterSet, noteMade: DefaultController, noteGroup: "ns/p"}, "ownerReferences": []any{map[string]string{"uid": "uid-2"}},
	}
	raw, err := json.Marshal(map[string]any{"metadata": meta, "status": map[string]any{"parents": []any{entry}}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.pool(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fields.Unset(p) {
		t.Errorf("pool.%s is not set", name)
	}
	if p.uid != "uid-1" || p.version != "5" || p.generation != 3 || !p.entry.equals(entry) {
		t.Errorf("pool() = %+v, want the metadata %v and the entry %+v", p, meta, entry)
	}
	raw, err = json.Marshal(map[string]any{"metadata": meta, "status": map[string]any{"controllers": []any{
		map[string]any{"name": DefaultController, "exportingClusters": []any{}}, map[string]any{"name": "another"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	i, err := r.imported(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fields.Unset(i, "entry.Clusters", "entry.Conditions") {
		t.Errorf("import.%s is not set", name)
	}
	if i.uid != "uid-1" || i.version != "5" || i.others != 1 || i.entry.Name != DefaultController {
		t.Errorf("imported() = %+v, want the metadata %v and both controllers", i, meta)
	}
}

// TestMalformedEntryIsOurs: an entry with our name is ours also if the rest cannot be read, so that it is
// replaced.
func TestMalformedEntryIsOurs(t *testing.T) {
	r := reader{DefaultController}
	e, ours := r.ours([]byte(`{"controllerName":"` + DefaultController + `","conditions":"none"}`))
	if !ours || e.Controller != DefaultController {
		t.Errorf("ours() = %+v, %v, want an entry of %s", e, ours, DefaultController)
	}
}

// TestConditionsKeepTheirTime: equal conditions may have different times, but must have one. A new status gets
// the present time.
func TestConditionsKeepTheirTime(t *testing.T) {
	at, now := time.Unix(1_700_000_000, 0), time.Unix(1_700_000_100, 0)
	have := condition{Type: typeExported, Status: "True", Reason: "Exported", Message: "message", Generation: 3, Since: at}
	want := have
	want.Since = now
	if !want.equals(have) || want.equals(condition{Type: typeExported, Status: "True", Reason: "Exported", Message: "message", Generation: 3}) {
		t.Error("equals() does not ignore a different time, or accepts none")
	}
	for status, since := range map[string]time.Time{"True": at, "False": now} {
		if got := begun([]condition{{Type: typeExported, Status: status}}, []condition{have}, now)[0].Since; !got.Equal(since) {
			t.Errorf("status %s after True: since %v, want %v", status, got, since)
		}
	}
}

// TestViewsHaveEveryField: the views of a federation and of a hub have every field of a member.
func TestViewsHaveEveryField(t *testing.T) {
	var v federation.View
	fields.Fill(&v, "Secret", "Also")
	c := v.Clusters[0]
	fields.Fill(c.Pools[0], "Filter", "Secret")
	c.State, c.Pools[0].State = federation.Live, federation.Draining
	v.Exports[0].Acks[0] = federation.ExportAck{Cluster: c.Name, State: federation.Live, Shown: federation.NotShown, ShownReason: "a reason"}
	out := ViewOf(&v, true)
	if out.Cluster != v.Self || !out.Settled || len(out.Members) != 1 {
		t.Fatalf("ViewOf() = %+v, want one member for %s", out, v.Self)
	}
	m := out.Members[0]
	for _, name := range fields.Unset(m, "Silent", "Reason") { // of silent members
		t.Errorf("Member.%s is not set", name)
	}
	if h := m.Holds[0]; h.Problem != "a reason" || h.Name != nameOf(v.Exports[0].Pool) {
		t.Errorf("import of our export: %+v, want its pool and reason", h)
	}
	imports := Local{Holds: []FoundImport{{Name: Name{"ns", "p"}, Clusters: []string{"a"}, Problem: "a reason"}}}.Imports()
	for _, name := range fields.Unset(imports[0]) {
		t.Errorf("Import.%s is not set", name)
	}
	if imports[0].Pool != (federation.PoolKey{Namespace: "ns", Name: "p"}) {
		t.Errorf("import of %v, want ns/p", imports[0].Pool)
	}

	var l Local
	fields.Fill(&l)
	h := &Hub{o: HubOptions{APITimeout: time.Second}, members: []*hubMember{{name: "a"}, {name: "b", local: &l}}}
	hm := h.view(h.members[0]).Members[0]
	for _, name := range fields.Unset(hm) {
		t.Errorf("member of a hub: %s is not set", name)
	}
	if !slices.Equal(hm.Exports, l.Exports) || !slices.Equal(hm.Served, l.Served) || hm.Holds[0].Name != l.Holds[0].Name {
		t.Errorf("member of a hub: %+v, want its state %+v", hm, l)
	}
}

// TestHubOptionsReachControllers: every setting of a hub reaches its controllers.
func TestHubOptionsReachControllers(t *testing.T) {
	var o HubOptions
	fields.Fill(&o, "Members")
	o.Log = slog.New(slog.DiscardHandler)
	o.Members = map[string]kubeapi.Config{"a": {Server: "https://192.0.2.1"}}
	h := &Hub{o: o, members: []*hubMember{{name: "a"}}}
	got := h.options(h.members[0])
	// One replica, without its own group, and with the default times.
	for _, name := range fields.Unset(got, "Config", "Rank", "Group", "DropAfter", "Pace", "Stagger", "Grace", "Settle", "Registerer", "Log") {
		t.Errorf("Options.%s is not set", name)
	}
	if got.Config.Server != o.Members["a"].Server || got.Namespace != o.Namespace || got.Drain != o.Drain || got.Agent != o.Agent || got.Lease != o.APITimeout {
		t.Errorf("options() = %+v, want the settings %+v", got, o)
	}
	published := Local{Exports: []Export{{Name{"ns", "p"}, true}}}
	h.members = h.members[:0]
	m := &hubMember{name: "a"}
	h.options(m).Publish(published)
	if m.local == nil || !m.local.Equal(published) {
		t.Errorf("published state %+v, want %+v", m.local, published)
	}
}
