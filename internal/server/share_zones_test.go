package server

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// readers returns which replica reads each source, and how many reads there are.
func (g *group) readers() (by map[string]string, reads int) {
	by = map[string]string{}
	for _, s := range g.replicas {
		for _, src := range s.share.Sources() {
			if src.Read {
				by[src.Name], reads = s.o.Name, reads+1
			}
		}
	}
	return by, reads
}

// When an engine's labels change to the zone of the replica that does not read it, that replica
// takes over its stream, and both replicas have its cache contents.
func TestZonesDivideReading(t *testing.T) {
	g := newGroupWith(t, 2, 10000, group{share: "partitioned", change: func(o *Options) { o.Zone = "of-" + o.Name }})
	var before map[string]string
	testkit.Eventually(t, func() string {
		by, reads := g.readers()
		if before = by; len(by) != groupEngines || reads != groupEngines {
			return fmt.Sprintf("%d reads of %d streams", reads, len(by))
		}
		return ""
	})
	g.churn(40)
	other := map[string]string{"replica-0": "replica-1", "replica-1": "replica-0"}
	path := filepath.Join(g.dir, "endpoints.yaml")
	var file struct {
		Defaults  json.RawMessage  `json:"defaults,omitempty"`
		Endpoints []map[string]any `json:"endpoints"`
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(b, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, ep := range file.Endpoints {
		source := fmt.Sprintf("%v:%v", ep["address"], ep["port"])
		owner := before[source]
		if owner == "" {
			owner = before[source+"/0"]
		}
		if owner == "" {
			t.Fatalf("no replica reads %s: %v", source, before)
		}
		ep["labels"].(map[string]any)["topology.kubernetes.io/zone"] = "of-" + other[owner]
	}
	if b, err = yaml.Marshal(file); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() string {
		by, reads := g.readers()
		for source, reader := range before {
			if by[source] != other[reader] {
				return fmt.Sprintf("%s is read by %q, and was by %s", source, by[source], reader)
			}
		}
		if reads != groupEngines {
			return fmt.Sprintf("%d reads of %d streams", reads, groupEngines)
		}
		return ""
	})
	for _, s := range g.replicas {
		for _, ep := range s.pool.Snapshot().Endpoints {
			if ep.InRemoteZone != (ep.Zone() != s.o.Zone) {
				t.Errorf("%s: %s in %s is away: %v", s.o.Name, ep.Address, ep.Zone(), ep.InRemoteZone)
			}
		}
		for _, m := range s.Status().Members {
			if m.Zone != "of-"+m.Name {
				t.Errorf("%s: %s is in zone %q", s.o.Name, m.Name, m.Zone)
			}
		}
	}
	g.churn(40)
	g.agree(g.replicas...)
}

// With gossip, changes are relayed within a zone; all replicas have the same content.
func TestZonesRelay(t *testing.T) {
	g := newGroupWith(t, 4, 10000, group{share: "partitioned", change: func(o *Options) { o.Zone = "of-" + string(o.Name[len(o.Name)-1]&^1) }})
	testkit.Eventually(t, func() string {
		g.churn(10)
		relayed := uint64(0)
		for _, s := range g.replicas {
			relayed += s.node.Status().Stats.Relayed
		}
		if relayed == 0 {
			return "nothing was passed on"
		}
		return ""
	})
	g.agree(g.replicas...)
}
