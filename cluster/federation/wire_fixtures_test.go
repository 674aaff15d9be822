package federation

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWireFixtures decodes the messages that published releases send to other clusters.
func TestWireFixtures(t *testing.T) {
	pool := PoolKey{Namespace: "prod", Name: "llama"}
	message := func(name string, b []byte) testkit.WireMessage {
		return testkit.WireMessage{Name: name, Encoded: b, Decode: decodeMessage}
	}
	export := Export{
		Pool: pool, Gateways: []Address{{HostPort: "gw.b.example:443"}}, EPPs: []Address{{HostPort: "10.1.2.3:9002"}}, Direct: []string{"10.1.2.4:8000"},
		Region: "eu", Zone: "z1", Ready: []Ready{{Model: "llama", Role: 1, Count: 3}}, Engines: 3, Draining: true,
	}
	testkit.WireFixtures(t,
		message("ask", (&ask{session: 7, at: time.Second, beat: true, print: 9, wants: []want{{pool: pool, at: filter.Position{}, most: 1000}}}).append(nil)),
		message("say", (&say{
			session: 7, at: time.Second, held: time.Millisecond, boot: 8, seq: 3, lease: 5 * time.Second, leaving: true, replica: "b-0", secret: [8]byte{1, 2},
			exports: []ack{{Export: export}}, heard: []verdict{{pool: pool, state: Live, shown: NotShown, why: "kind not installed"}}, print: 10,
			served: []PoolKey{pool}, servedKnown: true,
		}).append(nil)),
		message("part", (&partOf{session: 7, pool: pool, part: []byte{1, 2, 3}}).append(nil)),
		message("refuse", (&refuse{session: 7, at: time.Second, reason: "this replica is not ready"}).append(nil)),
	)
}
