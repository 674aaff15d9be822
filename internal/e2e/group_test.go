package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/extproc/xds"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// party is a rig whose replicas are processes that share by encrypted gossip.
type party struct {
	*rig
	with []childOptions // by replica
}

// Size of a party.
const (
	partyReplicas = 3
	partyEngines  = 12
)

// partyOptions change the default: joined replicas with the built-in profile, and an Envoy that is
// configured by xDS.
type partyOptions struct {
	kind   envoyconf.Kind // a fixed configuration instead of xDS
	config string         // file
	apart  bool           // each replica has its own key, so none can reach another
	engine *sim.Options   // nil: slow
	each   func(i int, o *sim.Options)
	params func(*envoyconf.Params) // with kind
	child  func(*childOptions)
}

// openParty opens engines, replicas and an Envoy, and waits until each replica's state of every
// engine is exact.
func openParty(t *testing.T, with partyOptions) *party {
	t.Helper()
	kind := with.kind
	engine := slow()
	if with.engine != nil {
		engine = *with.engine
	}
	p := &party{rig: open(t, rigOptions{kind: envoyconf.Plain, engines: partyEngines, engine: engine, each: with.each})}
	p.envoy.Stop()
	p.client.Close()
	var join, told []string
	for range partyReplicas {
		join = append(join, parts.FreeAddress(t))
	}
	for i := range partyReplicas {
		o := childOptions{
			Name: fmt.Sprintf("replica-%d", i+1), Listen: parts.FreeAddress(t), Admin: parts.FreeAddress(t), Config: with.config,
			Cluster: server.ClusterOptions{
				Mode: "gossip", Share: "partitioned", Keys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Bind: join[i], StreamBind: parts.FreeAddress(t), Join: join,
			},
		}
		if with.apart {
			o.Cluster.Keys[0][0] += byte(i)
		}
		if kind == "" {
			o.XDS, o.Listener = parts.FreeAddress(t), "127.0.0.1:0"
			told = append(told, o.XDS)
		}
		if with.child != nil {
			with.child(&o)
		}
		p.with = append(p.with, o)
		p.childs, p.extproc = append(p.childs, nil), append(p.extproc, o.Listen)
	}
	p.revive(0, 1, 2)
	if !with.apart {
		p.joined()
	}
	if kind == "" {
		conf, err := xds.Bootstrap{Admin: "127.0.0.1:0", Replicas: told}.Render()
		if err != nil {
			t.Fatal(err)
		}
		p.envoy = testkit.StartEnvoy(t, conf)
		p.client = workload.NewClient("http://"+p.envoy.Addr("inference"), 64)
	} else {
		p.openEnvoy(rigOptions{kind: kind, params: with.params})
	}
	p.everyReplica()
	return p
}

// everyReplica waits until Envoy considers every replica healthy.
func (p *party) everyReplica() {
	p.t.Helper()
	const stat = "cluster.pickers.membership_healthy"
	testkit.Await(p.t, "every replica is healthy to Envoy", func() bool { return p.envoy.Stats(p.t, stat)[stat] == partyReplicas })
}

// revive starts replicas at their previous addresses at the same time, and waits until they are
// ready.
func (p *party) revive(which ...int) {
	p.t.Helper()
	for _, i := range which {
		p.childs[i] = p.beginChild(p.with[i])
	}
	for _, i := range which {
		p.childs[i].ready(p.t)
	}
}

// status returns a replica's status.
func (p *party) status(i int) (*server.Status, error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + p.with[i].Admin + "/status")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var st server.Status
	return &st, json.NewDecoder(resp.Body).Decode(&st)
}

// joined waits until every replica has joined all others and its state of every engine is exact.
func (p *party) joined() {
	p.t.Helper()
	last := ""
	ok := testkit.PollUntil(func() bool {
		for i := range p.with {
			st, err := p.status(i)
			if err != nil {
				last = err.Error()
				return false
			}
			if last = st.Name + " " + st.State + ": " + st.Cluster.Line; st.State != "ready" || st.Cluster.State != "joined" || len(st.Members) != len(p.with) || inexact(st) > 0 {
				return false
			}
		}
		return true
	})
	if !ok {
		p.t.Fatalf("the replicas have not joined each other within %v: %s", patience, last)
	}
}

// inexact returns the number of engines whose state is not exact at a replica.
func inexact(st *server.Status) (n int) {
	for _, e := range st.Endpoints {
		if e.Knowledge != "exact" {
			n++
		}
	}
	return n
}

// notExact lists them.
func notExact(st *server.Status) string {
	var out []string
	for _, e := range st.Endpoints {
		if e.Knowledge != "exact" {
			out = append(out, fmt.Sprintf("%s %s (%s)", e.Address, e.Knowledge, e.Reason))
		}
	}
	return strings.Join(out, ", ")
}

// passedBy returns the number of requests that Envoy routed without a picker.
func (p *party) passedBy() int {
	return p.envoy.Stats(p.t, "failure_mode_allowed")["http.inference.ext_proc.picker_third.failure_mode_allowed"]
}
