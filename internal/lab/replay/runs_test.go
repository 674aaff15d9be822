package replay

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// agentRuns returns a case of a built-in load of agent runs on eight 70B engines. memory is a factor on
// their KV caches.
func agentRuns(t testing.TB, name, policyName string, rate, memory float64, length time.Duration, seed uint64) Case {
	t.Helper()
	w, err := trace.RunsByName(name)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := engine.MachineByName("70b")
	tr := w.Generate(trace.GenerateOptions{Rate: rate, Length: length, Seed: seed})
	return Case{
		Trace: tr, Policy: policy(t, policyName), Endpoints: 8, Seed: seed, Warmup: length / 5,
		Engine: engine.Config{Blocks: int(memory * float64(m.KVTokens) / float64(tr.BlockSize)), Model: m.Model, MaxSeqs: 1024, AdmitWhole: true},
	}
}

// TestRunsFollow checks that a turn of an agent run arrives in time after the last answer before it, that two
// runs are equal, and that a refused turn does not stop its run.
func TestRunsFollow(t *testing.T) {
	c := agentRuns(t, "agentruns", "unified", 6, 1, 3*time.Minute, 5)
	c.Trace.Requests[40].Input = 1 << 30 // no engine has memory for it
	s := played(t, c)
	for i := range s.Trace.Requests {
		r, last := &s.Trace.Requests[i], time.Duration(0)
		for _, n := range r.After {
			if o := &s.outcomes[n]; o.Error == "" {
				last = max(last, o.End)
			}
		}
		if o := &s.outcomes[i]; i != 40 && (o.Error != "" || o.First <= r.At) {
			t.Fatalf("request %d at %v: %+v", i, r.At, o)
		}
		if len(r.After) > 0 && r.At < last+r.Pause {
			t.Fatalf("request %d arrives at %v, %v after the answer, want %v", i, r.At, r.At-last, r.Pause)
		}
	}
	if c.Trace.Requests[len(c.Trace.Requests)-1].At == never || s.outcomes[40].Error == "" {
		t.Error("the caller's trace was changed, or the request without memory was answered")
	}
	p := s.result().Programs
	if p == nil || p.Mean < 30 || p.P90 < p.P50 {
		t.Errorf("programs took %+v", p)
	}
	if again := encoded(t, c); again != encoded(t, c) {
		t.Error("two runs differ")
	}
}

// admitted is the default policy that admits agent runs.
func admitted(t testing.TB) Policy {
	t.Helper()
	path := filepath.Join(t.TempDir(), "epp.yaml")
	text := `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: predicted-ttft-scorer}, {type: program-admission}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: predicted-ttft-scorer}]}]
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := FilePolicy(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestProgramAdmission checks that agent runs finish sooner if the engines' memory is short and new runs
// wait, and that nothing changes while the memory suffices.
func TestProgramAdmission(t *testing.T) {
	for _, seed := range []uint64{21, 22} {
		c := agentRuns(t, "longruns", "unified", 6, 1, 15*time.Minute, seed)
		unified := run(t, c).Programs.Mean
		c.Policy = admitted(t)
		r := run(t, c)
		t.Logf("seed %d: %.0f s, unified %.0f s", seed, r.Programs.Mean, unified)
		if r.Programs.Mean > .85*unified || r.Errors > 0 {
			t.Errorf("seed %d: runs take %.0f s and have %d errors, unified %.0f s", seed, r.Programs.Mean, r.Errors, unified)
		}
		c = agentRuns(t, "longruns", Default, 1.5, 1, 10*time.Minute, seed)
		plain := encoded(t, c)
		c.Policy = admitted(t)
		if encoded(t, c) != plain {
			t.Errorf("seed %d: admission changes a run with enough memory", seed)
		}
	}
}
