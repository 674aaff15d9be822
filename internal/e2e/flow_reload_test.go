package e2e

import (
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestReloadWhileWaiting checks that a changed file applies to waiting requests: free capacity is
// divided by the new weights and bands, and no request is lost.
func TestReloadWhileWaiting(t *testing.T) {
	file := configFile(t, queueing)
	r := open(t, rigOptions{engines: 1, server: func(o *server.Options) {
		o.Config, o.MessageTimeout = file, patience
	}})
	r.fleet.Engines()[0].Hang(faults.HangEngine)
	var wg sync.WaitGroup
	ask := func(tenant, objective string, n int) {
		for range n {
			wg.Go(func() {
				if status, drop := r.askAs(tenant, objective); status != http.StatusOK {
					t.Errorf("%s %s: status %d %q, want 200", tenant, objective, status, drop)
				}
			})
		}
	}
	// held returns the capacity that a tenant holds at a priority (all tenants for ""), and the
	// number of waiting requests.
	held := func(tenant string, priority int) (places float64, waiting int) {
		for _, q := range r.servers[0].Status().Queues {
			waiting += q.Waiting
			for _, b := range q.Bands {
				for _, f := range b.Flows {
					if b.Priority == priority && (tenant == "" || f.Flow == tenant) {
						places += f.InFlight
					}
				}
			}
		}
		return places, waiting
	}
	await := func(what, tenant string, priority int, places float64, waiting int) {
		t.Helper()
		testkit.Await(t, what, func() bool {
			p, w := held(tenant, priority)
			return p == places && w == waiting
		})
	}
	reload := func(pairs ...string) {
		t.Helper()
		before := r.servers[0].Status().Config.Hash
		if err := os.WriteFile(file, []byte(strings.NewReplacer(pairs...).Replace(queueing)), 0o600); err != nil {
			t.Fatal(err)
		}
		testkit.Await(t, "the file is in use", func() bool {
			c := r.servers[0].Status().Config
			return c.Problem == "" && c.Hash != before
		})
	}
	ask("silver", "", 2)
	await("two hold the engine", "", 0, 2, 0)
	ask("silver", "", 6)
	await("six wait", "", 0, 2, 6)
	ask("gold", "", 8)
	await("fourteen wait", "", 0, 2, 14)
	// With the previous weights, silver's requests would go first, because they arrived first.
	plugins := "plugins:\n- {type: round-robin-fairness-policy, name: tenants, parameters: {weights: {gold: 3}}}"
	turns := "flowControl:\n  defaultPriorityBand: {fairnessPolicyRef: tenants}"
	reload("plugins:", plugins, "flowControl:", turns, "maxConcurrency: 2", "maxConcurrency: 8")
	await("gold has three quarters", "gold", 0, 6, 8)
	await("silver has what is left", "silver", 0, 2, 8)

	// A new band precedes the bands of waiting requests.
	urgent := "- {name: urgent, priority: 5}\n- {name: batch"
	reload("plugins:", plugins, "flowControl:", turns, "maxConcurrency: 2", "maxConcurrency: 8", "- {name: batch", urgent)
	ask("gold", "batch", 1)
	await("batch waits", "", 0, 8, 9)
	ask("silver", "urgent", 2)
	await("urgent ones wait", "", 0, 8, 11)
	reload("plugins:", plugins, "flowControl:", turns, "maxConcurrency: 2", "maxConcurrency: 11", "- {name: batch", urgent)
	await("urgent ones went first", "silver", 5, 2, 8)
	await("and one of the others", "", 0, 9, 8)

	r.fleet.Engines()[0].Hang(faults.HangNone)
	wg.Wait()
	r.settle()
	if q := r.servers[0].Status().Queues[0]; q.Waiting != 0 || q.InFlight != 0 || q.Outcomes["dispatched"] != 19 {
		t.Errorf("afterwards: %+v", q)
	}
}
