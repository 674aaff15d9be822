package kube

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// podOf parses a pod as written by an API server: ready and with an address, unless rest changes
// that.
func podOf(t *testing.T, name, ip, metadata, rest string) *pod {
	t.Helper()
	if rest == "" {
		rest = `"conditions":[{"type":"Ready","status":"True"}]`
	}
	raw := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"prod","uid":"uid-%s","creationTimestamp":"2026-01-01T00:00:00Z"%s},
		"spec":{"nodeName":"n1","containers":[{"name":"engine","ports":[{"containerPort":8000}]},{"name":"side"}]},
		"status":{"phase":"Running","podIP":%q,"containerStatuses":[{"name":"engine","restartCount":2},{"name":"side","restartCount":5}],%s}}`,
		name, name, metadata, ip, rest)
	p, err := addressRules{}.readPod([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

// onHost parses a pod that uses its node's address and declares one port.
func onHost(t *testing.T, name, ip string, port int) *pod {
	t.Helper()
	p, err := addressRules{}.readPod(fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"prod","uid":"uid-%s","creationTimestamp":"2026-01-01T00:00:00Z"},
		"spec":{"hostNetwork":true,"containers":[{"name":"engine","ports":[{"containerPort":%d,"hostPort":%d}]}]},
		"status":{"podIP":%q,"podIPs":[{"ip":%q},{"ip":"fd00::1"}],"containerStatuses":[{"name":"engine","restartCount":1}],"conditions":[{"type":"Ready","status":"True"}]}}`,
		name, name, port, port, ip, ip))
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

func TestSpecs(t *testing.T) {
	pods := func(list ...*pod) []*pod { return list }
	events := endpoint.Events{Port: 5557, ReplayPort: 5600, Ranks: 1}
	at := netip.MustParseAddrPort
	spec := func(name, addr, life string) endpoint.Spec {
		a := at(addr)
		return endpoint.Spec{Name: name, Namespace: "prod", Host: a.Addr().String(), Addr: a, Instance: life}
	}
	with := func(s endpoint.Spec, change func(*endpoint.Spec)) endpoint.Spec { change(&s); return s }
	for _, c := range []struct {
		name   string
		pods   []*pod
		ports  []uint16
		events endpoint.Events
		want   found
	}{
		{
			name: "one port", ports: []uint16{8000},
			pods: pods(podOf(t, "b", "10.0.0.2", "", ""), podOf(t, "a", "10.0.0.1", `,"labels":{"llm-d.ai/role":"decode"}`, "")),
			want: found{ready: 2, specs: []endpoint.Spec{
				with(spec("a", "10.0.0.1:8000", "uid-a/2"), func(s *endpoint.Spec) { s.Labels = map[string]string{"llm-d.ai/role": "decode"} }),
				spec("b", "10.0.0.2:8000", "uid-b/2"),
			}},
		},
		{
			name: "ranks", ports: []uint16{8000, 8001}, events: events,
			pods: pods(podOf(t, "a", "fd00::1", "", "")),
			want: found{ready: 1, specs: []endpoint.Spec{
				with(spec("a-rank-0", "[fd00::1]:8000", "uid-a/2"), func(s *endpoint.Spec) { s.Events = events }),
				with(spec("a-rank-1", "[fd00::1]:8001", "uid-a/7"), func(s *endpoint.Spec) {
					s.Rank, s.Events = 1, endpoint.Events{Port: 5558, ReplayPort: 5601, Ranks: 1}
				}),
			}},
		},
		{
			name: "not endpoints", ports: []uint16{8000},
			pods: pods(
				podOf(t, "unready", "10.0.0.1", "", `"conditions":[{"type":"Ready","status":"False"}]`),
				podOf(t, "no-condition", "10.0.0.2", "", `"conditions":null`),
				podOf(t, "terminating", "10.0.0.3", `,"deletionTimestamp":"2026-01-01T00:00:00Z"`, ""),
				podOf(t, "no-address", "", "", "")),
			want: found{unready: 4},
		},
		{
			name: "active ports", ports: []uint16{8000, 8001, 8002},
			pods: pods(
				podOf(t, "a", "10.0.0.1", `,"annotations":{"llm-d.ai/active-ports":"8002, 9, x"}`, ""),
				podOf(t, "b", "10.0.0.2", `,"annotations":{"inference.networking.k8s.io/active-ports":"8000"}`, ""),
				podOf(t, "c", "10.0.0.3", `,"annotations":{"llm-d.ai/active-ports":""}`, "")),
			want: found{ready: 3, specs: []endpoint.Spec{
				with(spec("a-rank-2", "10.0.0.1:8002", "uid-a/7"), func(s *endpoint.Spec) { s.Rank = 2 }),
				spec("b-rank-0", "10.0.0.2:8000", "uid-b/2"),
			}, problems: []podProblem{{"c", "llm-d.ai/active-ports lists none of the pool's target ports, so the pod has no endpoint"}}},
		},
		{
			name: "what pods say", ports: []uint16{8000}, events: events,
			pods: pods(
				podOf(t, "a", "10.0.0.1", `,"annotations":{"grapevine-epp.github.io/models":"m1, m2,","grapevine-epp.github.io/events-port":"6000","grapevine-epp.github.io/events-ranks":"4",
					"grapevine-epp.github.io/events-topic":"kv","grapevine-epp.github.io/events-replay-port":"0","grapevine-epp.github.io/metrics-port":"9400"},"labels":{"grapevine-epp.github.io/events-port":"1"}`, ""),
				podOf(t, "b", "10.0.0.2", `,"annotations":{"grapevine-epp.github.io/events-port":"0","grapevine-epp.github.io/metrics-path":"/prometheus"}`, ""),
				podOf(t, "c", "10.0.0.3", `,"annotations":{"grapevine-epp.github.io/events-port":"many"}`, "")),
			want: found{ready: 3, specs: []endpoint.Spec{
				with(spec("a", "10.0.0.1:8000", "uid-a/2"), func(s *endpoint.Spec) {
					s.Models, s.Metrics = []string{"m1", "m2"}, "http://10.0.0.1:9400/metrics"
					s.Events = endpoint.Events{Port: 6000, Topic: "kv", Ranks: 4}
					s.Labels = map[string]string{"grapevine-epp.github.io/events-port": "1"}
				}),
				with(spec("b", "10.0.0.2:8000", "uid-b/2"), func(s *endpoint.Spec) { s.Metrics = "http://10.0.0.2:8000/prometheus" }),
				with(spec("c", "10.0.0.3:8000", "uid-c/2"), func(s *endpoint.Spec) { s.Events = events }),
			}, problems: []podProblem{{"c", `grapevine-epp.github.io/events-port must be a number between 0 and 65535, not "many"; the default applies`}}},
		},
		{
			name: "the newest at an address", ports: []uint16{8000},
			pods: pods(podOf(t, "old", "10.0.0.1", "", ""), podOf(t, "new", "10.0.0.1", `,"creationTimestamp":"2026-01-02T00:00:00Z"`, "")),
			want: found{ready: 2, doubled: 1, specs: []endpoint.Spec{spec("new", "10.0.0.1:8000", "uid-new/2")}},
		},
		{
			name: "pods of one node, each with its own port", ports: []uint16{8000, 8001, 8002},
			pods: pods(onHost(t, "a", "10.0.0.1", 8000), onHost(t, "b", "10.0.0.1", 8001), podOf(t, "c", "10.0.0.2", "", "")),
			want: found{ready: 3, doubled: 1, specs: []endpoint.Spec{
				spec("a-rank-0", "10.0.0.1:8000", "uid-a/1"),
				with(spec("b-rank-1", "10.0.0.1:8001", "uid-b/1"), func(s *endpoint.Spec) { s.Rank = 1 }),
				with(spec("a-rank-2", "10.0.0.1:8002", "uid-a/1"), func(s *endpoint.Spec) { s.Rank = 2 }), // no container declares it
				spec("c-rank-0", "10.0.0.2:8000", "uid-c/2"),
				with(spec("c-rank-1", "10.0.0.2:8001", "uid-c/7"), func(s *endpoint.Spec) { s.Rank = 1 }),
				with(spec("c-rank-2", "10.0.0.2:8002", "uid-c/7"), func(s *endpoint.Spec) { s.Rank = 2 }),
			}},
		},
	} {
		got := specs(c.pods, c.ports, c.events)
		diff := cmp.Diff(c.want, got, cmp.AllowUnexported(found{}, podProblem{}), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}))
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestSamePod changes fields that affect endpoints and fields that do not.
func TestSamePod(t *testing.T) {
	base := podOf(t, "a", "10.0.0.1", "", "")
	if !samePod(base, podOf(t, "a", "10.0.0.1", `,"annotations":{"kubectl.kubernetes.io/x":"1"},"resourceVersion":"9","managedFields":[{}]`, "")) {
		t.Error("samePod() = false after a change of unrelated annotations")
	}
	for name, other := range map[string]*pod{
		"address":    podOf(t, "a", "10.0.0.2", "", ""),
		"readiness":  podOf(t, "a", "10.0.0.1", "", `"conditions":[]`),
		"pod":        podOf(t, "a", "10.0.0.1", `,"uid":"another"`, ""),
		"label":      podOf(t, "a", "10.0.0.1", `,"labels":{"x":"y"}`, ""),
		"annotation": podOf(t, "a", "10.0.0.1", `,"annotations":{"llm-d.ai/active-ports":"1"}`, ""),
		"restart":    podOf(t, "a", "10.0.0.1", "", `"conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"engine","restartCount":3}]`),
	} {
		if samePod(base, other) {
			t.Errorf("samePod() = true with another %s", name)
		}
	}
}

func TestPools(t *testing.T) {
	read := func(f func([]byte) (pool, error), spec string) string {
		p, err := f([]byte(`{"metadata":{"name":"p"},"spec":` + spec + `}`))
		if err != nil {
			return "error"
		}
		return fmt.Sprintf("%s %v %s", p.selector, p.ports, p.problem)
	}
	for spec, want := range map[string]string{
		`{"selector":{"matchLabels":{"b":"2","a.b/c":"1"}},"targetPorts":[{"number":8000},{"number":8001},{"number":8000}]}`: "a.b/c=1,b=2 [8000 8001] ",
		`{"selector":{"matchLabels":{"bad key!":"1"}},"targetPorts":[{"number":1}]}`:                                         ` [1] the selector contains "bad key!", which is not a valid label name`,
		`{"selector":{"matchLabels":{"a/b/c":"1"}}}`:                                                                         ` [] the selector contains "a/b/c", which is not a valid label name`,
		`{"selector":{"matchLabels":{"a":"x,y"}}}`:                                                                           ` [] the selector requires a to be "x,y", which is not a valid label value`,
		`{"selector":{"matchLabels":{"a":""}}}`:                                                                              "a= [] ",
		`{}`:                                                                                                                 " [] the selector names no label",
		`{"targetPorts":[{"number":-1}]}`:                                                                                    "error",
	} {
		if got := read(readPool, spec); got != want {
			t.Errorf("%s: got %q, want %q", spec, got, want)
		}
	}
	if got, want := read(readPoolOld, `{"selector":{"a":"1"},"targetPortNumber":8000}`), "a=1 [8000] "; got != want {
		t.Errorf("older pool: got %q, want %q", got, want)
	}
}

func TestNames(t *testing.T) {
	objectiveOf := func(name, spec string) *objective {
		o, err := readObjective([]byte(`{"metadata":{"name":"` + name + `"},"spec":` + spec + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return &o
	}
	rewriteOf := func(name, created, rules string) *rewrite {
		w, err := readRewrite([]byte(`{"metadata":{"name":"` + name + `","creationTimestamp":"` + created + `"},"spec":{"poolRef":{"name":"p"},"rules":` + rules + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		return &w
	}
	got := namesOf(GroupPool, "p", []*objective{
		objectiveOf("high", `{"priority":10,"poolRef":{"group":"inference.networking.k8s.io","kind":"InferencePool","name":"p"}}`),
		objectiveOf("unset", `{"poolRef":{"name":"p"}}`),
		objectiveOf("shed", `{"priority":-1,"poolRef":{"name":"p"}}`),
		objectiveOf("other-pool", `{"priority":1,"poolRef":{"name":"q"}}`),
		objectiveOf("older-group", `{"priority":1,"poolRef":{"group":"inference.networking.x-k8s.io","name":"p"}}`),
		objectiveOf("other-kind", `{"priority":1,"poolRef":{"kind":"Service","name":"p"}}`),
		objectiveOf("empty", `null`),
	}, []*rewrite{
		rewriteOf("young", "2026-01-02T00:00:00Z", `[{"matches":[{"model":{"type":"Exact","value":"m"}}],"targets":[{"modelRewrite":"young"}]},{"targets":[{"modelRewrite":"any"}]}]`),
		rewriteOf("old", "2026-01-01T00:00:00Z", `[{"matches":[{"model":{"value":"m"}},{"model":{"value":"n"}}],"targets":[{"modelRewrite":"a","weight":3},{"modelRewrite":"b"}]},
			{"matches":[{"model":{"value":"m"}}],"targets":[{"modelRewrite":"later rule"}]},{"matches":[{"model":{"type":"Regex","value":".*"}}],"targets":[{"modelRewrite":"x"}]},
			{"matches":[{"model":{"value":"none"}}]}]`),
		rewriteOf("no rules", "2026-01-01T00:00:00Z", `null`),
	})
	want := request.Names{
		Objectives: map[string]int{"high": 10, "unset": 0, "shed": -1},
		Rewrites: map[string]request.Rewrite{
			"m": {{Model: "a", Weight: 3}, {Model: "b"}}, "n": {{Model: "a", Weight: 3}, {Model: "b"}}, "none": nil,
			request.AnyModel: {{Model: "any", Weight: 1}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m := got.Target("none", 7); m != "" {
		t.Errorf("a rule without targets rewrites to %q", m)
	}
}

// FuzzObjects decodes arbitrary bytes as each kind without a panic. A pod's endpoints have
// addresses.
func FuzzObjects(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a","annotations":{"llm-d.ai/active-ports":"1"}},"spec":{"containers":[{"ports":[{"containerPort":1}]}]},"status":{"podIP":"::ffff:1.2.3.4","conditions":[{"type":"Ready","status":"True"}]}}`))
	f.Add([]byte(`{"spec":{"selector":{"matchLabels":{"a":"b"}},"targetPorts":[{"number":1}],"rules":[{"matches":[{"model":{"value":"m"}}],"targets":[{"modelRewrite":"x","weight":1}]}]}}`))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, raw []byte) {
		if p, err := (addressRules{}).readPod(raw); err == nil {
			for _, s := range specs([]*pod{&p}, []uint16{1, 2}, endpoint.Events{Port: 1, Ranks: 1}).specs {
				if !s.Addr.Addr().IsGlobalUnicast() || s.Addr.Addr().Is4In6() || s.Name == "" && p.name != "" {
					t.Errorf("endpoint %+v", s)
				}
			}
		}
		_, _ = readPool(raw)
		_, _ = readPoolOld(raw)
		_, _ = readPicked(raw)
		o, _ := readObjective(raw)
		w, _ := readRewrite(raw)
		namesOf(GroupPool, "p", []*objective{&o}, []*rewrite{&w})
	})
}
