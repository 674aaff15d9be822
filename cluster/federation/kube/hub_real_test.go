//go:build kube

package kube

import (
	"log/slog"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// testHub: one process with write access to all API servers does the work of each cluster's
// replicas: exports, restarts, withdrawal, and an unreachable cluster.
func testHub(m *mesh) {
	configs := map[string]kubeapi.Config{}
	for _, name := range []string{"a", "b"} {
		s := &site{m: m, name: name, Cluster: m.servers[name]}
		m.sites[name] = s
		configs[name] = s.Config()
	}
	a, b := m.sites["a"], m.sites["b"]
	var hub *Hub
	open := func() {
		m.t.Helper()
		var err error
		hub, err = OpenHub(HubOptions{
			Members: configs, Pools: []Name{{m.ns, "p"}}, Namespace: m.ns, Drain: m.drain, APITimeout: time.Second, Log: slog.New(slog.NewTextHandler(m.t.Output(), nil)),
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	open()
	defer func() { hub.Close() }()
	a.pool("p", "ClusterSet")
	b.pool("p", "")
	a.pool("other", "ClusterSet") // not in the hub's pools
	a.wantControls("=a True/Accepted")
	b.wantControls("=a True/Accepted")
	a.wantParents(m.entry("True", "Exported"))
	b.wantParents("")
	b.annotate("p", `"ClusterSet"`)
	a.wantControls("=a,b True/Accepted")
	b.wantParents(m.entry("True", "Exported"))

	hub.Close()
	a.annotate("p", "null") // while it is unreachable
	open()
	a.wantParents("")
	a.wantControls("=b True/Accepted")
	b.wantControls("=b True/Accepted")

	hub.Close()
	configs["c"] = kubeapi.Config{Server: "https://127.0.0.1:1"}
	open()
	b.wantParents(m.entry("False", "Pending"))
	b.wantMessage("c")
	a.wantControls("=b True/Accepted")
	if got := a.parents("other") + b.controls("other"); got != "none" {
		m.t.Errorf("pool outside of the hub: %s", got)
	}
	if st := hub.Status(); len(st) != 3 || len(st["c"].Problems) == 0 {
		m.t.Errorf("status does not report c: %+v", st)
	}
}
