package server

import (
	"bytes"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	pickerendpoint "github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// goodStatus is the status of a replica without problems.
func goodStatus() Status {
	return Status{
		State: "ready", UptimeS: 100, Cluster: ClusterStatus{OK: true, State: "joined"},
		Discovery: discovery.Status{From: "endpoints.yaml", Read: time.Now(), Endpoints: 1},
		Endpoints: []EndpointStatus{goodEndpoint()},
	}
}

func goodEndpoint() EndpointStatus {
	return EndpointStatus{Address: "10.0.0.1:8000", Up: true, Knowledge: knowledge.Exact.String(), Health: HealthStatus{State: health.Healthy.String()}}
}

// TestFindProblems: a healthy replica has no problem, and each fault yields its code. Together the
// faults yield every code that a replica can find.
func TestFindProblems(t *testing.T) {
	endpoint := func(change func(*EndpointStatus)) func(*Status, *symptoms) {
		return func(st *Status, _ *symptoms) { change(&st.Endpoints[0]) }
	}
	sick := func(state health.State, cause health.Cause) func(*Status, *symptoms) {
		return endpoint(func(e *EndpointStatus) {
			e.Health.State, e.Health.Cause, e.Health.Evidence = state.String(), cause.String(), "evidence"
		})
	}
	known := func(k knowledge.State) func(*Status, *symptoms) {
		return endpoint(func(e *EndpointStatus) { e.Knowledge, e.Reason = k.String(), "a reason" })
	}
	group := func(state string) func(*Status, *symptoms) {
		return func(st *Status, _ *symptoms) { st.Cluster = ClusterStatus{State: state, Line: state + ": b"} }
	}
	clocks := func(ahead, within float64) func(*Status, *symptoms) {
		return func(st *Status, _ *symptoms) {
			same := 0.0
			st.Members = []MemberStatus{{Name: "a", State: "self"}, {Name: "b", State: "up", ClockAheadS: &ahead, ClockWithinS: within}, {Name: "c", State: "up", ClockAheadS: &same}}
		}
	}
	pair := func(fault pickerendpoint.PairFault) func(*Status, *symptoms) {
		return func(st *Status, _ *symptoms) { st.PD = &PDStatus{Pairs: []PairStatus{{State: fault.String()}}} }
	}
	broken := []strict.Problem{{Message: "not valid"}}
	all := map[problems.Code]bool{}
	for _, c := range []struct {
		want  problems.Code
		fault func(*Status, *symptoms)
	}{
		{"", func(*Status, *symptoms) {}},
		{problems.Starting, func(st *Status, _ *symptoms) { st.State, st.Reason = "starting", "loading models" }},
		{problems.Draining, func(st *Status, _ *symptoms) { st.State = "draining" }},
		{problems.Stalled, func(_ *Status, sy *symptoms) { sy.stalled = []string{"readiness"} }},
		{problems.LogLost, func(_ *Status, sy *symptoms) { sy.logLost = 7 }},
		{problems.Certificate, func(_ *Status, sy *symptoms) { sy.certificate = "certificate expires soon" }},
		{problems.Tracing, func(_ *Status, sy *symptoms) { sy.tracing = "collector:4317: connection refused" }},
		{problems.Memory, func(_ *Status, sy *symptoms) { sy.memory = "760 of 1000 MiB are needed" }},
		{problems.Late, func(_ *Status, sy *symptoms) { sy.late = "timers of this replica run 480 ms late" }},
		{problems.Partitioned, group("partitioned")},
		{problems.Alone, group("alone")},
		{problems.Settings, group("misconfigured")},
		{problems.Releases, group("degraded")},
		{problems.Joining, group("joining")},
		{problems.Leaving, group("leaving")},
		{"", func(st *Status, _ *symptoms) { st.Cluster = ClusterStatus{OK: true, State: "alone"} }},
		{problems.Remote, func(st *Status, _ *symptoms) {
			st.Federation = &link.Status{Clusters: []link.ClusterStatus{{Name: "a", State: "live"}, {Name: "b", State: "lost"}}}
		}},
		{problems.Clocks, clocks(90, 0.001)},
		{problems.Clocks, clocks(-1.2, 0.001)},
		{"", clocks(1.2, 0.3)}, // the round trip may explain it
		{problems.Refused, sick(health.Out, health.Refused)},
		{problems.Refused, endpoint(func(e *EndpointStatus) { e.Up = false })},
		{problems.Hung, sick(health.Out, health.Silent)},
		{problems.Hung, sick(health.Probing, health.Stalled)},
		{problems.Hung, sick(health.Out, health.Probe)},
		{problems.Failing, sick(health.Out, health.Failed)},
		{problems.Failing, sick(health.Out, health.Halted)},
		{problems.Declining, sick(health.Out, health.Declined)},
		{problems.Invalid, sick(health.Out, health.Invalid)},
		{problems.Slow, sick(health.Probing, health.Late)},
		{problems.PoolUnhealthy, func(_ *Status, sy *symptoms) { sy.poolUnhealthy = "5 of 6 endpoints are out" }},
		{problems.Suspect, sick(health.Suspect, health.Late)},
		{problems.Returning, sick(health.Returning, health.Late)},
		{problems.Unreached, endpoint(func(e *EndpointStatus) { e.Up, e.Health.State = false, health.Unreached })},
		{"", func(st *Status, _ *symptoms) {
			st.UptimeS, st.Endpoints[0].Up, st.Endpoints[0].Health.State = 1, false, health.Unreached
		}},
		{problems.ModelFails, endpoint(func(e *EndpointStatus) { e.Health.AvoidedModels = []string{"a"} })},
		{problems.Full, endpoint(func(e *EndpointStatus) { e.Health.FullS = 1 })},
		{problems.NoGauges, endpoint(func(e *EndpointStatus) { e.GaugesError = "404 Not Found" })},
		{problems.Approximate, known(knowledge.Approximate)},
		{problems.StreamLost, endpoint(func(e *EndpointStatus) {
			e.Knowledge, e.StreamError = knowledge.Approximate.String(), "connection refused"
		})},
		{problems.ModelFiles, func(st *Status, _ *symptoms) {
			st.ModelFiles = []modelfiles.Status{{Model: "a", State: modelfiles.StateGated}, {Model: "b", State: modelfiles.StateReady}}
		}},
		{problems.ModelFiles, func(st *Status, _ *symptoms) {
			st.Models = []prefix.ModelStatus{{Name: "a", State: "failed", Error: "no tokenizer.json"}}
		}},
		{problems.CatchingUp, known(knowledge.CatchingUp)},
		{problems.Partial, known(knowledge.Partial)},
		{problems.Mismatched, known(knowledge.Mismatched)},
		{problems.Unreadable, known(knowledge.Unreadable)},
		{problems.UnknownModel, func(st *Status, _ *symptoms) { st.NoModel = 3 }},
		{problems.Modelless, func(st *Status, _ *symptoms) {
			st.Modelless = ModellessStatus{Requests: 3, Paths: []string{"/v1/realtime"}}
		}},
		{problems.NoEndpoint, func(st *Status, _ *symptoms) { st.Endpoints = nil }},
		{problems.StaleList, func(st *Status, _ *symptoms) { st.Discovery.Problems = broken }},
		{problems.BadEntry, func(st *Status, _ *symptoms) { st.Discovery.Invalid = broken }},
		{problems.BadEntry, func(st *Status, _ *symptoms) {
			st.Discovery.Unresolved = map[string]string{"engine-1": "no such host"}
		}},
		{problems.Config, func(st *Status, _ *symptoms) { st.Config.Problem = "epp.yaml:3:4: unknown field\nmore" }},
		{problems.Plugin, func(st *Status, _ *symptoms) {
			st.Plugins = []PluginStatus{{Name: "gold", Failing: "trap: unreachable"}}
		}},
		{"", func(st *Status, _ *symptoms) { st.Plugins = []PluginStatus{{Name: "gold", Calls: 3}} }},
		{problems.NotFollowed, func(st *Status, _ *symptoms) { st.Served.Problem = "answers come from other endpoints" }},
		{problems.Rights, func(st *Status, _ *symptoms) { st.Discovery.MissingRights = []string{`apiGroups [""]`} }},
		{problems.Rights, func(_ *Status, sy *symptoms) { sy.rights = []string{`apiGroups [""]`} }},
		{problems.Saturated, func(st *Status, _ *symptoms) { st.Queues = []rules.Status{{Model: "a", Waiting: 2}} }},
		{problems.UnknownRole, func(_ *Status, sy *symptoms) { sy.unknownRole = "10.0.0.1:8000 has the unknown role" }},
		{problems.NoPrefill, func(_ *Status, sy *symptoms) { sy.noPrefill = "no endpoint computes prompts for others" }},
		{problems.PairDiffers, func(_ *Status, sy *symptoms) { sy.differences = []problems.Item{{Subject: "a and b"}} }},
		{problems.PairNothing, pair(pickerendpoint.PairNothing)},
		{problems.PairFails, pair(pickerendpoint.PairTransfer)},
		{problems.PairFails, pair(pickerendpoint.PairLate)},
		{problems.PairSlow, pair(pickerendpoint.PairSlow)},
		{"", pair(pickerendpoint.PairWorks)},
		{problems.NoDecode, func(_ *Status, sy *symptoms) { sy.noDecode = "no endpoint decodes" }},
	} {
		st, sy := goodStatus(), symptoms{}
		c.fault(&st, &sy)
		found := findProblems(&st, sy)
		var got []problems.Code
		for _, f := range found {
			got = append(got, f.Code)
		}
		var want []problems.Code
		if c.want != "" {
			want, all[c.want] = []problems.Code{c.want}, true
		}
		if !slices.Equal(got, want) {
			t.Errorf("codes %v, want %v", got, want)
		}
		if len(found) == 1 && found[0].Severity != problems.Notice && found[0].Summary() == "" {
			t.Errorf("%s does not name its subject", c.want)
		}
	}
	for _, p := range problems.Table {
		if found := p.Source == problems.Replica; found != all[p.Code] {
			t.Errorf("%s (%s) is found by no fault, or is not marked as found by replicas", p.Code, p.Title)
		}
	}
}

// TestOwnClock: a replica whose clock differs from all others names itself.
func TestOwnClock(t *testing.T) {
	ahead, behind := 90.0, -90.0
	for _, c := range []struct {
		b, c *float64
		want string
	}{{&ahead, &ahead, "a: this replica's clock is behind those of all 2 other members"}, {&behind, &behind, "a: this replica's clock is ahead of those of all 2"}, {&ahead, &behind, "b: its clock is 1m30s ahead of this replica's; c: its clock is 1m30s behind"}} {
		st := goodStatus()
		st.Name = "a"
		st.Members = []MemberStatus{{Name: "a", State: "self"}, {Name: "b", State: "up", ClockAheadS: c.b}, {Name: "c", State: "up", ClockAheadS: c.c}}
		found := findProblems(&st, symptoms{})
		if len(found) != 1 || !strings.HasPrefix(found[0].Summary(), c.want) {
			t.Errorf("problems %+v, want %q", found, c.want)
		}
	}
}

// TestProblemsOfEndpoints: an endpoint lists its own problems, the most urgent first.
func TestProblemsOfEndpoints(t *testing.T) {
	st := goodStatus()
	st.Endpoints = append(st.Endpoints, goodEndpoint())
	e := &st.Endpoints[1]
	e.Address, e.Knowledge, e.Reason = "10.0.0.2:8000", knowledge.Partial.String(), "a reason"
	e.Health.AvoidedModels, e.Health.AvoidedOthers, e.Health.FullS = []string{"m"}, 1, 1
	found := findProblems(&st, symptoms{})
	if len(st.Endpoints[0].Problems) > 0 || len(e.Problems) != len(found) {
		t.Fatalf("problems %v and %v, of all %v", st.Endpoints[0].Problems, e.Problems, found)
	}
	for i := range found {
		if found[i].Code != e.Problems[i] {
			t.Errorf("problem %d of the endpoint is %s, of all %s", i, e.Problems[i], found[i].Code)
		}
	}
}

// TestCausesHaveCodes: each cause of ill health has a code, and the runbook names the cause there.
func TestCausesHaveCodes(t *testing.T) {
	for c := health.None + 1; c < health.NumCauses; c++ {
		code := problems.OfCause(c.String())
		if code == "" {
			t.Errorf("cause %s has no code", c)
			continue
		}
		if p, _ := problems.Lookup(string(code)); !strings.Contains(p.Details, "`"+c.String()+"`") {
			t.Errorf("the entry %s does not name the cause %s", code, c)
		}
	}
}

// TestProblemsAreLogged: a problem is logged with its code when it begins and when it ends, and
// not while it lasts.
func TestProblemsAreLogged(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var l problems.List
	l.Add(problems.Refused, "10.0.0.1:8000", "connections are refused")
	since, now := map[problems.Code]time.Time{}, time.Now()
	logProblems(log, since, l.Found(), now)
	logProblems(log, since, l.Found(), now.Add(time.Second))
	logProblems(log, since, nil, now.Add(90*time.Second))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2:\n%s", len(lines), out.String())
	}
	for i, want := range []string{`level=WARN msg="problem began" code=GV3001 .*detail="10.0.0.1:8000: connections are refused"`, `msg="problem ended" code=GV3001 after=1m30s`} {
		if !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %q, want %s", lines[i], want)
		}
	}
}

// TestSlowLookIsRepeatedSoon checks that a look at the problems that took seconds, since no processor was
// free, is repeated within ten seconds.
func TestSlowLookIsRepeatedSoon(t *testing.T) {
	for took, most := range map[time.Duration]time.Duration{time.Millisecond: 2 * time.Second, 50 * time.Millisecond: 5 * time.Second, 3 * time.Second: 10 * time.Second, time.Minute: 10 * time.Second} {
		if rest := problemRest(took); rest <= 0 || rest > most {
			t.Errorf("after a look of %s the next is in %s, want at most %s", took, rest, most)
		}
	}
}

// TestLossCounter: lost lines are a problem until none has been lost for five minutes.
func TestLossCounter(t *testing.T) {
	var c lossCounter
	now := time.Now()
	for _, step := range []struct {
		total, want uint64
		after       time.Duration
	}{{0, 0, 0}, {5, 5, time.Second}, {5, 5, time.Minute}, {9, 9, 2 * time.Minute}, {9, 9, 6 * time.Minute}, {9, 0, 8 * time.Minute}, {10, 1, 9 * time.Minute}} {
		if got := c.add(step.total, now.Add(step.after)); got != step.want {
			t.Errorf("after %s: %d recent losses, want %d", step.after, got, step.want)
		}
	}
}

// TestDeadEngineIsAProblem: a replica whose engine dies counts the problem in its metric and lists
// it in its status, and the metric has a series for every code.
func TestDeadEngineIsAProblem(t *testing.T) {
	f, o := options(t, fleet.Options{Engines: 2})
	s := open(t, o)
	testkit.Await(t, "no problem that needs action", func() bool { return s.problems.found.Load() != nil && problems.Urgent(s.Status().Problems) == 0 })
	if err := f.Engines()[0].Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the dead engine is counted", func() bool { return problemCount(t, s, problems.Refused) == 1 })
	if found := s.Status().Problems; len(found) == 0 || found[0].Severity == problems.Notice {
		t.Errorf("problems %+v, want the dead engine first", found)
	}
	for _, p := range problems.Table {
		if n := problemCount(t, s, p.Code); (n >= 0) != (p.Source == problems.Replica) {
			t.Errorf("%s: metric %v", p.Code, n)
		}
	}
}

// problemCount returns the value of grapevine_problems for a code, or -1.
func problemCount(t *testing.T, s *Server, code problems.Code) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "grapevine_problems" && m.GetLabel()[0].GetValue() == string(code) {
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}
