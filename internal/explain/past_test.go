package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/endpoint/saved"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// randomFleet returns a status page with random loads. Costs depend on the address only.
func randomFleet(rng *rand.Rand, engines int) []byte {
	var f fleet
	for i := range engines {
		e := saved.Endpoint{Address: fmt.Sprintf("10.0.0.%d:8000", i+1), Name: fmt.Sprint("gpu-", i), Up: true, GaugeAgeS: rng.Float64() / 4}
		e.Waiting, e.Running, e.KVUse = rng.IntN(6), rng.IntN(30), rng.Float64()
		cost := endpoint.PriorCost
		cost.PerToken *= 1 + float64(i)/4
		cost.PrefillSeen, cost.DecodeSeen = 100, 100
		e.Facts = &saved.Facts{Labels: map[string]string{"gpu": fmt.Sprint(i % 2)}, Cost: cost, KVBlocks: 4000, BlockSize: 16, Load: saved.LoadFacts{
			Requests: rng.Int64N(30), Waiting: rng.Int64N(4), PrefillTokens: rng.Int64N(20_000), Pairs: 1e7 * rng.Float64(), Tokens: rng.Int64N(60_000), Context: rng.Int64N(60_000),
			Rate: 4 * rng.Float64(), Busy: rng.Float64(), SinceFirstS: -1,
		}}
		e.InFlight = e.Facts.Load.Requests
		f.Endpoints = append(f.Endpoints, e)
	}
	b, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return b
}

// decided returns a decision in a random fleet, as a replica would store it.
func decided(t testing.TB, rng *rand.Rand, now time.Time) *Decision {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fleet.json")
	if err := os.WriteFile(file, randomFleet(rng, 6), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Offline{Fleet: file, Tokens: 2000 + rng.IntN(20_000), Held: map[string]int{"10.0.0.2:8000": rng.IntN(4000), "10.0.0.5:8000": rng.IntN(20_000)}, Seed: 1, Now: now}
	d, err := o.Decide(&request.Request{ID: "r", Path: "/v1/completions", Headers: none{}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(d) // over the wire
	if err != nil {
		t.Fatal(err)
	}
	var past Decision
	if err := json.Unmarshal(b, &past); err != nil {
		t.Fatal(err)
	}
	return &past
}

type none struct{}

func (none) Get(string) string { return "" }

func repeated(t *testing.T, past *Decision, config string, status []byte) *Decision {
	t.Helper()
	o := Offline{Config: config, Past: past, Status: status, Seed: 1, Now: past.At}
	d, err := o.Decide(&request.Request{ID: past.RequestID, Path: "/v1/completions", Headers: none{}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestRepeatedDecision: under the same configuration, a repeated decision equals the stored one, although
// the load has changed since.
func TestRepeatedDecision(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		past := decided(t, rng, now)
		d := repeated(t, past, "", randomFleet(rng, 6))
		if diff := cmp.Diff(past.Explanation, d.Explanation, cmpopts.EquateApprox(0, 1e-6), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(explanation.Explanation{}, "Prompt")); diff != "" {
			t.Fatalf("seed %d (-stored +repeated):\n%s", seed, diff)
		}
		if d.Decided != past.Choice || d.Notes[0] != "the stored decision chose the same endpoint" {
			t.Errorf("seed %d: decided %q, notes %q", seed, d.Decided, d.Notes)
		}
	}
}

// TestRepeatedUnderAnotherPolicy: another configuration decides with the stored load.
func TestRepeatedUnderAnotherPolicy(t *testing.T) {
	config := filepath.Join(t.TempDir(), "epp.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: running-requests-size-scorer}]\nschedulingProfiles: [{name: default, plugins: [{pluginRef: running-requests-size-scorer}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	differs := 0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		past := decided(t, rng, time.Unix(1_800_000_000, 0))
		least := slices.MinFunc(past.Candidates, func(a, b explanation.Candidate) int { return a.Load.Running - b.Load.Running })
		d := repeated(t, past, config, randomFleet(rng, 6))
		load := map[string]int{}
		for _, c := range d.Candidates {
			load[c.Endpoint] = c.Load.Running
		}
		if load[d.Choice] != least.Load.Running {
			t.Errorf("seed %d: chose %s with %d running, want one with %d", seed, d.Choice, load[d.Choice], least.Load.Running)
		}
		if d.Choice != past.Choice {
			differs++
			if want := "the stored decision chose " + past.Choice; d.Notes[0] != want {
				t.Errorf("seed %d: note %q, want %q", seed, d.Notes[0], want)
			}
		}
	}
	if differs == 0 {
		t.Error("both policies always agree")
	}
}

// TestRepeatedWithoutSomeEndpoints: candidates that have left the pool are omitted, and the notes count
// them.
func TestRepeatedWithoutSomeEndpoints(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	past := decided(t, rng, time.Unix(1_800_000_000, 0))
	d := repeated(t, past, "", randomFleet(rng, 4))
	if notes := strings.Join(d.Notes, "\n"); len(d.Candidates) != 4 || !strings.Contains(notes, "2 of 6 candidates have left the pool") {
		t.Errorf("%d candidates, notes %q", len(d.Candidates), notes)
	}
	o := Offline{Past: past, Status: []byte(`{"endpoints":[{"address":"10.1.0.1:8000"}]}`), Now: past.At}
	if _, err := o.Decide(&request.Request{Path: "/v1/completions", Headers: none{}}); err == nil {
		t.Error("no candidate is left, and there is no error")
	}
}

// TestPastHasEveryField: the state of a stored candidate replaces all of its present load, and the repeated
// decision has the identity of the stored one.
func TestPastHasEveryField(t *testing.T) {
	past := &Decision{}
	fields.Fill(&past.Explanation)
	past.Candidates[0].Endpoint = "10.0.0.1:8000"
	o := Offline{Past: past}
	st, err := parseFleet(randomFleet(rand.New(rand.NewPCG(1, 5)), 1), "the page")
	if err != nil {
		t.Fatal(err)
	}
	st.Endpoints[0].Facts.Load.SinceFirstS = 4
	f, err := o.past(st)
	if err != nil {
		t.Fatal(err)
	}
	load := f.Endpoints[0].Facts.Load
	for _, name := range fields.Unset(load) {
		t.Errorf("Load.%s is not set", name)
	}
	if l := past.Candidates[0].Load; load.Rate != l.Rate || load.Busy != l.Busy || load.Context != l.Context || load.SinceFirstS != 4 {
		t.Errorf("load %+v, want that of the stored %+v", load, l)
	}
	if e, l := f.Endpoints[0], past.Candidates[0].Load; !cmp.Equal(e.Values, l.Values) || e.InFlight != l.Requests || e.GaugeAgeS != l.GaugeAge/1000 {
		t.Errorf("gauges %+v, want those of the stored %+v", e, l)
	}
	d := &Decision{}
	o.compare(d)
	if d.RequestID != past.RequestID || !d.At.Equal(past.At) || d.Prompt != past.Prompt || d.Decided != past.Choice {
		t.Errorf("compare() = %+v, want the identity of the stored %+v", d, past)
	}
}

// TestSeedsDecide: decisions at random differ between seeds, and are equal for the same seed.
func TestSeedsDecide(t *testing.T) {
	dir := t.TempDir()
	page, config := filepath.Join(dir, "fleet.json"), filepath.Join(dir, "epp.yaml")
	text := "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: random-picker}]\nschedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]\n"
	if err := errors.Join(os.WriteFile(page, randomFleet(rand.New(rand.NewPCG(1, 6)), 6), 0o600), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	choices := map[string]bool{}
	for seed := range uint64(10) {
		var got [2]string
		for i := range got {
			o := Offline{Config: config, Fleet: page, Tokens: 100, Seed: seed, Now: time.Unix(1_800_000_000, 0)}
			d, err := o.Decide(&request.Request{ID: "r", Path: "/v1/completions", Headers: none{}})
			if err != nil {
				t.Fatal(err)
			}
			got[i] = d.Choice
		}
		if got[0] != got[1] {
			t.Errorf("seed %d chose %s and %s", seed, got[0], got[1])
		}
		choices[got[0]] = true
	}
	if len(choices) < 3 {
		t.Errorf("ten seeds chose %d endpoints, want 3 or more", len(choices))
	}
}

// FuzzFleet: a status page with any content gives a decision or an error.
func FuzzFleet(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 4))
	past := decided(f, rng, time.Unix(1_800_000_000, 0))
	f.Add(randomFleet(rng, 2))
	f.Add([]byte(`{"endpoints":[{"address":"10.0.0.1:8000","gauge_age_s":-1}]}`))
	sweep.Fuzz(f, sweep.Slow, func(t *testing.T, page []byte) {
		if _, err := parseFleet(page, "the page"); err != nil {
			return
		}
		o := Offline{Past: past, Status: page, Seed: 1, Now: past.At}
		if d, err := o.Decide(&request.Request{Path: "/v1/completions", Headers: none{}}); err == nil && d.Choice == "" && d.Refused == "" {
			t.Error("a decision without a choice and without a refusal")
		}
	})
}
