package replay

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// queued is the policy of a configuration in which requests wait for four engines of eight
// places each.
func queued(t testing.TB, more string) Policy {
	t.Helper()
	path := filepath.Join(t.TempDir(), "epp.yaml")
	text := `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: load-only-policy}
- {type: concurrency-detector, parameters: {maxConcurrency: 8}}
- {type: round-robin-fairness-policy}
- {type: round-robin-fairness-policy, name: weighted, parameters: {weights: {small: 2}}}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
` + more
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := FilePolicy(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// demand is the load of one tenant, evenly spread over time.
type demand struct {
	tenant   string
	priority int
	rate     float64 // requests a second
	output   int     // tokens, of some 20 ms each
}

// asked returns a trace of the given duration with the tenants' requests.
func asked(t testing.TB, seconds float64, demands ...demand) *trace.Trace {
	t.Helper()
	type line struct {
		at   float64
		text string
	}
	var lines []line
	for k, d := range demands {
		for i := range int(d.rate * seconds) {
			at := (float64(i) + float64(k)/7) / d.rate * 1e3
			lines = append(lines, line{at, fmt.Sprintf(`{"timestamp":%.3f,"input_length":50,"output_length":%d,"hash_ids":[],"session_id":"%s%d","tenant":%q,"priority":%d}`,
				at, d.output, d.tenant, i, d.tenant, d.priority)})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&text, l.text)
	}
	return read(t, text.String(), trace.ReadOptions{Spread: -1, BlockSize: 64})
}

// machine takes 20 ms for each step, independent of the batch.
var machine = engine.Config{Blocks: 4000, Model: engine.Model{A: 20}}

// most returns the largest number of dispatched requests that were at engines at the same time.
func most(r *Result, tr *trace.Trace) int {
	type change struct {
		at time.Duration
		by int
	}
	var list []change
	for i, o := range r.Outcomes {
		if o.Error == "" {
			list = append(list, change{tr.Requests[i].At + o.Queued, 1}, change{o.End, -1})
		}
	}
	slices.SortFunc(list, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	n, most := 0, 0
	for _, c := range list {
		n += c.by
		most = max(most, n)
	}
	return most
}

func tenant(t testing.TB, r *Result, name string) Tenant {
	t.Helper()
	for _, one := range r.Tenants {
		if one.Name == name {
			return one
		}
	}
	t.Fatalf("no tenant %s in %+v", name, r.Tenants)
	return Tenant{}
}

// TestQueueShares: tenants that ask for 1, 2 and 5 times a third of the capacity get a third each,
// or the share of their weight. This holds for one replica and for three.
func TestQueueShares(t *testing.T) {
	tr := asked(t, 60, demand{"small", 0, 8, 100}, demand{"middle", 0, 16, 100}, demand{"large", 0, 40, 100})
	for _, tc := range []struct {
		fairness string
		replicas int
		want     map[string]float64
	}{
		{"round-robin-fairness-policy", 1, map[string]float64{"small": 1. / 3, "middle": 1. / 3, "large": 1. / 3}},
		{"round-robin-fairness-policy", 3, map[string]float64{"small": 1. / 3, "middle": 1. / 3, "large": 1. / 3}},
		{"weighted", 3, map[string]float64{"small": .5, "middle": .25, "large": .25}},
		{"global-strict-fairness-policy", 1, map[string]float64{"small": .125, "middle": .25, "large": .625}},
	} {
		p := queued(t, "  defaultRequestTTL: 5s\n  defaultPriorityBand: {fairnessPolicyRef: "+tc.fairness+", maxRequests: 600}\n")
		c := Case{Trace: tr, Policy: p, Endpoints: 4, Replicas: tc.replicas, Share: 20 * time.Millisecond, Engine: machine, Warmup: 10 * time.Second, Seed: 2}
		r := run(t, c)
		shed := 0
		for name, want := range tc.want {
			got := tenant(t, r, name)
			if shed += got.Shed; math.Abs(got.Share-want) > .1*want {
				t.Errorf("%s, %d replicas: %s has %.3f of the places, want %.3f", tc.fairness, tc.replicas, name, got.Share, want)
			}
			if got.Queue.P99 > 5.1 {
				t.Errorf("%s: %s waited for %.2f s, 5 s at most", tc.fairness, name, got.Queue.P99)
			}
		}
		if n := most(r, tr); n < 32 || n > 35 || tc.replicas == 1 && n != 32 {
			t.Errorf("%s, %d replicas: %d requests at engines at once, there are 32 places", tc.fairness, tc.replicas, n)
		}
		if shed != r.Errors || shed == 0 {
			t.Errorf("%d shed by tenant, %d in all", shed, r.Errors)
		}
	}
}

// TestQueuePriorities: interactive requests wait for the next free permit, not behind batch
// requests. With eviction they do not wait at all, and evicted requests are counted.
func TestQueuePriorities(t *testing.T) {
	tr := asked(t, 60, demand{"chat", 0, 2, 50}, demand{"batch", -1, 5, 400})
	more := "  defaultRequestTTL: 0s\n  defaultNegativePriorityBand: {maxRequests: 40}\n"
	play := func(p Policy) (chat, batch Tenant, r *Result) {
		r = run(t, Case{Trace: tr, Policy: p, Endpoints: 4, Engine: machine, Seed: 3})
		return tenant(t, r, "chat"), tenant(t, r, "batch"), r
	}
	chat, batch, _ := play(queued(t, more))
	if chat.Shed > 0 || batch.Shed == 0 {
		t.Errorf("%d of chat and %d of batch are shed", chat.Shed, batch.Shed)
	}
	if chat.Queue.P99 > 1.5 || batch.Queue.P50 < 3 {
		t.Errorf("p99 of chat waited %.2f s, p50 of batch %.2f s", chat.Queue.P99, batch.Queue.P50)
	}
	ending, ended, r := play(queued(t, more+"  enableEviction: true\n"))
	if ending.Queue.P99 > .1 || ending.Queue.P99 >= chat.Queue.P99 || r.Reasons[evictedText] == 0 || ended.Shed < r.Reasons[evictedText] {
		t.Errorf("p99 of chat waited %.2f s, %.2f s without eviction; %v", ending.Queue.P99, chat.Queue.P99, r.Reasons)
	}
	// Results of a policy without a queue are split by tenant too.
	alone, _, _ := play(policy(t, "load_only"))
	if alone.Queue != (Summary{}) || alone.Requests != chat.Requests {
		t.Errorf("without a queue: %+v", alone)
	}
}

// TestQueueLosesNoRequest: every request is answered or refused exactly once, even if replicas
// exchange load late or never, with and without eviction. No permit is left at the end, and equal
// cases give equal results.
func TestQueueLosesNoRequest(t *testing.T) {
	tr := asked(t, 20, demand{"a", 0, 20, 60}, demand{"b", 5, 3, 30}, demand{"c", -2, 9, 120}, demand{"", -1, 9, 80})
	for i, more := range []string{"  enableEviction: true\n", "  defaultPriorityBand: {fairnessPolicyRef: weighted, orderingPolicyRef: shortest-first-ordering-policy}\n"} {
		for _, share := range []time.Duration{Cut, 30 * time.Millisecond} {
			c := Case{Trace: tr, Policy: queued(t, "  defaultRequestTTL: 4s\n  maxRequests: 60\n"+more), Endpoints: 4, Replicas: 3, Share: share, Engine: machine, Seed: uint64(i)}
			checked, err := c.check()
			if err != nil {
				t.Fatal(err)
			}
			s, err := prepare(checked)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.play(context.Background()); err != nil {
				t.Fatal(err)
			}
			for _, r := range s.replicas {
				for _, q := range r.queue.Status() {
					if q.Waiting != 0 || q.Own != 0 || q.Evicting != 0 {
						t.Errorf("share %v: replica %d holds places in the end: %+v", share, r.number, q)
					}
				}
			}
			answered := 0
			for k, o := range s.outcomes {
				switch at := tr.Requests[k].At; {
				case o.Error == "" && (o.First < at+o.Queued || o.End < o.First):
					t.Fatalf("request %d at %v: %+v", k, at, o)
				case o.Error == "":
					answered++
				}
			}
			if answered < len(s.outcomes)/3 || answered == len(s.outcomes) {
				t.Errorf("share %v: %d of %d are answered", share, answered, len(s.outcomes))
			}
			if first := encoded(t, c); encoded(t, c) != first {
				t.Errorf("share %v: two runs differ", share)
			}
		}
	}
}
