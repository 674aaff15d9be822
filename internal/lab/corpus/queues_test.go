package corpus

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/flow"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// TestCorpusQueues runs each published flow control configuration: requests queue as it specifies,
// no request is lost, and limits, bands and places are respected.
func TestCorpusQueues(t *testing.T) {
	n := 0
	datadriven.Walk(t, "shapes", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			c, _ := config.Parse("f", []byte(d.Input), config.Options{Table: pd.Table()})
			if c != nil && c.Flow != nil {
				n++
				queueAsSaid(t, d.Pos, c.Flow.Gate())
				orderAsSaid(t, d.Pos, c.Flow.Queue)
			}
			return d.Expected
		})
	})
	if n < 3 && flag.Lookup("test.run").Value.String() == "" {
		t.Errorf("%d flow control configurations", n)
	}
}

// queueAsSaid offers a pool of ten places twice the requests that may wait, then empties it.
func queueAsSaid(t *testing.T, name string, g *gate.Config) {
	t.Helper()
	o := g.Queue()
	each := g.Sizing.Permits(1000)
	c := flow.New(o)
	now := int64(1)
	c.SetCapacity(now, rules.Capacity{Permits: 10 * each, Endpoints: 2})
	rng := rand.New(rand.NewPCG(1, 1))
	var held []rules.Handle
	waiting, refused, offered := 0, 0, 12_000
	take := func() {
		for _, e := range c.Events(nil) {
			if waiting--; e.Outcome == rules.Dispatched {
				held = append(held, e.Handle)
			} else {
				refused++
			}
		}
		if len(held) > 10 {
			t.Fatalf("%s: %d requests hold the ten places", name, len(held))
		}
	}
	for i := range offered {
		now += int64(time.Microsecond)
		a := rules.Request{Flow: fmt.Sprint(i % 3), Priority: rng.IntN(3) - 1, Bytes: 1000, Permits: each, Work: rng.Float64(), Target: time.Duration(rng.IntN(1000)) * time.Millisecond}
		switch h, out := c.Offer(now, a); out {
		case rules.Dispatched:
			held = append(held, h)
		case rules.Queued:
			waiting++
		default:
			refused++
		}
		take()
	}
	s := c.Status(now, 0)
	if most := o.MaxRequests; most > 0 && int64(s.Waiting) > most {
		t.Errorf("%s: %d waiting, limit %d", name, s.Waiting, most)
	}
	for _, b := range s.Bands {
		for _, said := range append(o.Bands, o.Default) {
			if said.Priority == b.Priority && int64(b.Waiting) > said.MaxRequests {
				t.Errorf("%s: %d waiting in band %d, limit %d", name, b.Waiting, b.Priority, said.MaxRequests)
			}
		}
	}
	served := 0
	for ; len(held) > 0; take() {
		now += int64(time.Microsecond)
		c.Release(now, held[0], .001)
		held = held[1:]
		served++
		if len(held) == 0 { // requests of bands closed by a usage limit leave at their timeout
			take()
			now += int64(2 * time.Minute)
			c.Advance(now)
		}
	}
	if s := c.Status(now, 0); s.Waiting != 0 || s.Own != 0 || waiting != 0 || served+refused != offered {
		t.Errorf("%s: %d served and %d refused of %d; %d waiting and %d places held at the end", name, served, refused, offered, s.Waiting, s.Own)
	}
}

// Policies by their published names, with the expected values.
var (
	fairnessNames = map[string]rules.Fairness{
		"global-strict-fairness-policy": rules.Strict, "round-robin-fairness-policy": rules.Places,
		"weighted-work-fairness-policy": rules.Work, "program-aware-fairness": rules.LeastService,
	}
	orderingNames = map[string]rules.Ordering{
		"fcfs-ordering-policy": rules.Arrival, "edf-ordering-policy": rules.Deadline,
		"slo-deadline-ordering-policy": rules.LatencyTarget, "shortest-first-ordering-policy": rules.ShortestFirst,
	}
	// usageNames are parameters of usage limits, with the ceilings they give three bands of a full
	// pool.
	usageNames = map[string]struct {
		parameters string
		full       []float64
	}{
		"static-usage-limit-policy":      {"{}", []float64{1, 1, 1}},
		"priority-holdback-policy":       {"{minCeiling: 0.5}", []float64{1, .75, .5}},
		"soft-reflective-ceiling-policy": {"{}", []float64{1, 0, 0}},
	}
	generations = map[string]string{
		"llm-d.ai/v1alpha1":                      "flowControl:\n  saturationDetector: {pluginRef: gate}\n",
		"inference.networking.x-k8s.io/v1alpha1": "saturationDetector: {pluginRef: gate}\nflowControl:\n",
	}
)

// TestPoliciesByName combines every fairness policy with every order and usage limit, in both
// generations of configurations, and checks that each policy has its documented effect.
func TestPoliciesByName(t *testing.T) {
	for generation, section := range generations {
		for fairness, wantFairness := range fairnessNames {
			for ordering, wantOrdering := range orderingNames {
				for usage, limit := range usageNames {
					name := strings.Join([]string{generation, fairness, ordering, usage}, " ")
					text := fmt.Sprintf(`apiVersion: %s
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, name: gate, parameters: {maxConcurrency: 4, concurrencyMode: requests}}
- {type: %s, name: fair}
- {type: %s, name: order}
- {type: %s, name: usage, parameters: %s}
- {type: max-score-picker}
schedulingProfiles: [{name: default, plugins: [{pluginRef: max-score-picker}]}]
%s  usageLimitPolicyPluginRef: usage
  defaultPriorityBand: {fairnessPolicyRef: fair, orderingPolicyRef: order}
  priorityBands: [{priority: 3, fairnessPolicyRef: fair, orderingPolicyRef: order}, {priority: -2, maxRequests: "50"}]
`, generation, fairness, ordering, usage, limit.parameters, section)
					c, problems := config.Parse("f", []byte(text), config.Options{Table: pd.Table()})
					if c == nil || c.Flow == nil {
						t.Fatalf("%s: %v", name, problems)
					}
					o := c.Flow.Queue
					for _, b := range []rules.Band{o.Bands[0], o.Default, o.Negative} {
						if b.Fairness != wantFairness || b.Ordering != wantOrdering {
							t.Errorf("%s: band %+v", name, b)
						}
					}
					ceilings := make([]float64, 3)
					if c.Flow.Limit().Ceilings(1, []int{3, 0, -2}, ceilings); !slices.Equal(ceilings, limit.full) {
						t.Errorf("%s: ceilings of three bands in a full pool: %v", name, ceilings)
					}
					if c.Flow.Sizing.Unit != rules.Requests || c.Flow.Sizing.Requests != 4 {
						t.Errorf("%s: sizing %+v", name, c.Flow.Sizing)
					}
					orderAsSaid(t, name, o)
				}
			}
		}
	}
}

// orderAsSaid queues requests for one place in every band and checks their order: within one flow,
// between two flows, and between two bands.
func orderAsSaid(t *testing.T, name string, o rules.Options) {
	t.Helper()
	listed := append(slices.Clone(o.Bands), o.Default, o.Negative)
	listed[len(listed)-2].Priority, listed[len(listed)-1].Priority = 77, -77 // not listed
	slices.SortFunc(listed, func(a, b rules.Band) int { return a.Priority - b.Priority })
	var lowToHigh []rules.Request
	for _, b := range listed {
		inOneFlow := []rules.Request{
			{TTL: 900 * time.Millisecond, Target: 900 * time.Millisecond, Work: 1},
			{TTL: 300 * time.Millisecond, Work: 3},
			{TTL: 600 * time.Millisecond, Target: 100 * time.Millisecond, Work: .5},
			{TTL: 100 * time.Millisecond, Target: 500 * time.Millisecond, Work: 2},
		}
		want := map[rules.Ordering][]int{rules.Arrival: {0, 1, 2, 3}, rules.Deadline: {3, 1, 2, 0}, rules.LatencyTarget: {2, 3, 0, 1}, rules.ShortestFirst: {2, 0, 3, 1}}
		if got := goes(t, name, o, b.Priority, time.Millisecond, inOneFlow); !slices.Equal(got, want[b.Ordering]) {
			t.Errorf("%s, band %d, ordering %d: order within a flow %v", name, b.Priority, b.Ordering, got)
		}
		work := 4. // of a, for policies that distinguish flows by work
		if b.Fairness == rules.Strict {
			work = 1
		}
		var ofTwo []rules.Request
		for i := range 12 { // first six of a, then six of b
			ofTwo = append(ofTwo, rules.Request{Flow: string(rune('a' + i/6)), Work: []float64{work, 1}[i/6]})
		}
		first, ofA := goes(t, name, o, b.Priority, 0, ofTwo)[:5], 0
		for _, i := range first {
			if i < 6 {
				ofA++
			}
		}
		served := map[rules.Fairness][]int{rules.Strict: {5}, rules.Places: {2, 3}, rules.Work: {1}, rules.LeastService: {1}, rules.MostTurns: {5}}
		if !slices.Contains(served[b.Fairness], ofA) {
			t.Errorf("%s, band %d, fairness %d: %d of the first five are of a, whose requests are longer and came first", name, b.Priority, b.Fairness, ofA)
		}
		lowToHigh = append(lowToHigh, rules.Request{Priority: b.Priority})
	}
	got := goes(t, name, o, 0, 0, lowToHigh)
	for i, k := range got {
		if k != len(got)-1-i {
			t.Errorf("%s: order of bands, lowest first: %v", name, got)
			break
		}
	}
}

// goes returns the order in which requests with different arrival times get the single permit.
// Requests without a priority belong to one band.
func goes(t *testing.T, name string, o rules.Options, priority int, apart time.Duration, asks []rules.Request) (order []int) {
	t.Helper()
	o.Limit, o.Evict = nil, false // a request of no band has the permit
	c := flow.New(o)
	now := int64(time.Second)
	c.SetCapacity(now, rules.Capacity{Permits: 1, Endpoints: 1})
	held, _ := c.Offer(now, rules.Request{Flow: "holder", Priority: 99})
	number := map[rules.Handle]int{}
	for i, a := range asks {
		now += int64(apart)
		if a.Priority == 0 {
			a.Priority = priority
		}
		h, out := c.Offer(now, a)
		if out != rules.Queued {
			t.Fatalf("%s: request %d: %v", name, i, out)
		}
		number[h] = i
	}
	for range asks {
		now += int64(time.Millisecond)
		c.Release(now, held, -1)
		e := c.Events(nil)
		if len(e) != 1 || e[0].Outcome != rules.Dispatched {
			t.Fatalf("%s: a place was freed: %v", name, e)
		}
		held = e[0].Handle
		order = append(order, number[held])
	}
	return order
}
