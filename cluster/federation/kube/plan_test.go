package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

var (
	epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	llama = Name{"prod", "llama"}
)

// given returns the facts of cluster a, which serves prod/llama.
func given(change func(*facts)) *facts {
	f := &facts{
		View: View{Cluster: "a", Settled: true}, controller: DefaultController, now: epoch, drain: time.Minute, forget: time.Hour,
		lease: 5 * time.Second, limit: defaultExports,
		pools: map[Name]*pool{}, imports: map[Name]*import_{}, serves: map[Name]string{llama: ""}, memory: newMemory(), failed: map[Name]string{},
		outside: func(Name) bool { return false },
	}
	change(f)
	f.Members, f.over = f.sane(f.limit)
	f.memory.observe(f)
	return f
}

// asks adds the annotation to the local pool.
func (f *facts) asks(value string) {
	f.pools[llama] = &pool{Name: llama, asked: true, export: value, generation: 1}
}

// has returns a local import that lists clusters.
func (f *facts) has(clusters ...string) *import_ {
	i := &import_{Name: llama, made: true, entry: &control{Name: DefaultController}}
	for _, c := range clusters {
		i.entry.Clusters = append(i.entry.Clusters, exporting{c})
	}
	f.imports[llama] = i
	return i
}

// member is another cluster that optionally exports prod/llama and has an import that lists
// clusters.
func (f *facts) member(name string, exports bool, holds ...string) *Member {
	m := Member{Cluster: name, Served: []Name{llama}, ServedKnown: true}
	if exports {
		m.Exports = []Export{{Name: llama}}
	}
	if holds != nil {
		m.Holds = []FoundImport{{Name: llama, Clusters: holds}}
	}
	f.Members = append(f.Members, m)
	return &f.Members[len(f.Members)-1]
}

// told formats a plan for prod/llama.
func told(p plan) string {
	var out []string
	if e := p.parents[llama]; e != nil {
		c := e.Conditions[0]
		out = append(out, fmt.Sprintf("pool %s/%s: %s", c.Status, c.Reason, c.Message))
	}
	if i := p.imports[llama]; i != nil {
		var names []string
		for _, c := range i.Clusters {
			names = append(names, c.Name)
		}
		a, _ := conditionOf(i.Conditions, typeAccepted)
		out = append(out, fmt.Sprintf("import %s %s/%s: %s", strings.Join(names, ","), a.Status, a.Reason, a.Message))
	}
	for _, e := range p.local.Exports {
		out = append(out, fmt.Sprintf("exports draining=%t", e.Draining))
	}
	for _, h := range p.local.Holds {
		out = append(out, fmt.Sprintf("holds %v %q", h.Clusters, h.Problem))
	}
	return strings.Join(out, "\n")
}

// TestDesired: the wanted content of objects.
func TestDesired(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*facts)
		want   string
	}{
		{"nothing is asked for", func(f *facts) { f.pools[llama] = &pool{Name: llama}; f.member("b", false) }, ""},
		{"asked for, nothing there yet", func(f *facts) { f.asks(ClusterSet); f.member("b", false) },
			"pool False/Pending: waiting for a, b\nimport a True/Accepted: exported by a\nexports draining=false\nholds [] \"\""},
		{"everywhere", func(f *facts) { f.asks(ClusterSet); f.has("a"); f.member("b", false, "a"); f.member("c", false, "a") },
			"pool True/Exported: exported to a, b, c\nimport a True/Accepted: exported by a\nexports draining=false\nholds [a] \"\""},
		{"one does not have it", func(f *facts) { f.asks(ClusterSet); f.has("a"); f.member("b", false, "a"); f.member("c", false) },
			"pool False/Pending: waiting for c; exported to a, b\nimport a True/Accepted: exported by a\nexports draining=false\nholds [a] \"\""},
		{"one has an import without us", func(f *facts) { f.asks(ClusterSet); f.has("a", "b"); f.member("b", true, "b") },
			"pool False/Pending: waiting for b; exported to a\nimport a,b True/Accepted: exported by a, b\nexports draining=false\nholds [a b] \"\""},
		{"one is silent", func(f *facts) { f.asks(ClusterSet); f.has("a"); f.member("b", false, "a").Silent = true },
			"pool False/Pending: waiting for b (silent); exported to a\nimport a True/Accepted: exported by a\nexports draining=false\nholds [a] \"\""},
		{"one cannot", func(f *facts) {
			f.asks(ClusterSet)
			f.has("a")
			f.member("b", false, "a")
			f.member("c", false).Holds = []FoundImport{{Name: llama, Problem: "no\nroom\x00"}}
		}, "pool False/NotSupported: not to c: no room ; exported to a, b\nimport a True/Accepted: exported by a\nexports draining=false\nholds [a] \"\""},
		{"nobody else is known", func(f *facts) { f.asks(ClusterSet); f.has("a") },
			"pool False/Pending: no other cluster of the set is known\nimport a True/Accepted: exported by a\nexports draining=false\nholds [a] \"\""},
		{"imports are not installed here", func(f *facts) { f.asks(ClusterSet); f.blind = problemAbsent; f.member("b", false, "a") },
			"pool False/NotSupported: not to a: the kind InferencePoolImport is not installed; exported to b\nimport a True/Accepted: exported by a\nexports draining=false\nholds [] \"the kind InferencePoolImport is not installed\""},
		{"another scope", func(f *facts) { f.asks("Galaxy"); f.member("b", false) },
			`pool False/NotSupported: "Galaxy" is not a known scope: want ClusterSet`},
		{"no scope", func(f *facts) { f.asks(""); f.member("b", false) },
			"pool False/NotRequested: the annotation inference.networking.x-k8s.io/export is empty: want ClusterSet"},
		{"the federation refuses", func(f *facts) { f.asks(ClusterSet); f.serves[llama] = "not allowed"; f.member("b", false) },
			"pool False/NotSupported: not allowed"},
		{"another picker's pool", func(f *facts) { f.asks(ClusterSet); delete(f.serves, llama) }, ""},
		{"another picker's pool that it exports", func(f *facts) {
			f.asks(ClusterSet)
			f.pools[llama].entry = &parent{}
			delete(f.serves, llama)
			f.has("a")
		}, ""},
		{"a deleted pool drains", func(f *facts) { f.asks(ClusterSet); f.pools[llama].deleted = true; f.has("a") },
			"import a False/Draining: no cluster takes further requests: a (draining)\nexports draining=true\nholds [a] \"\""},
		{"a pool that is gone drains", func(f *facts) { f.has("a", "b"); f.member("b", true) },
			"import a,b True/Accepted: exported by a (draining), b\nexports draining=true\nholds [a b] \"\""},
		{"it drains still", func(f *facts) {
			f.has("a").entry.Conditions = []condition{{Type: typeDraining, Status: "True", Since: epoch.Add(-59 * time.Second)}}
		}, "import a False/Draining: no cluster takes further requests: a (draining)\nexports draining=true\nholds [a] \"\""},
		{"it has drained", func(f *facts) {
			f.has("a").entry.Conditions = []condition{{Type: typeDraining, Status: "True", Since: epoch.Add(-time.Minute)}}
		}, ""},
		{"a clock that goes wrong", func(f *facts) {
			f.has("a").entry.Conditions = []condition{{Type: typeDraining, Status: "True", Since: epoch.Add(time.Hour)}}
		}, "import a False/Draining: no cluster takes further requests: a (draining)\nexports draining=true\nholds [a] \"\""},
		{"drained, and nobody heard yet", func(f *facts) {
			f.has("a").entry.Conditions = []condition{{Type: typeDraining, Status: "True", Since: epoch.Add(-time.Hour)}}
			f.Settled = false
		}, "import a False/Draining: no cluster takes further requests: a (draining)\nexports draining=true\nholds [a] \"\""},
		{"another withdraws", func(f *facts) { f.has("b"); f.member("b", true).Exports[0].Draining = true },
			"import b False/Draining: no cluster takes further requests: b (draining)\nholds [b] \"\""},
		{"another has withdrawn", func(f *facts) { f.has("b"); f.member("b", false) }, ""},
		{"another falls silent", func(f *facts) { f.has("b", "c"); f.member("b", true).Silent = true; f.member("c", true) },
			"import b,c True/Accepted: exported by b (silent), c\nholds [b c] \"\""},
		{"all fall silent", func(f *facts) { f.has("b"); f.member("b", true).Silent = true },
			"import b False/Silent: no cluster takes further requests: b (silent)\nholds [b] \"\""},
		{"silent and not listed", func(f *facts) { f.member("b", true).Silent = true }, ""},
		{"silent for long", func(f *facts) {
			f.has("b")
			f.member("b", true).Silent = true
			f.memory.lost[subject{llama, "b"}] = epoch.Add(-time.Hour)
		}, ""},
		{"no member any more", func(f *facts) { f.has("b"); f.memory.lost[subject{llama, "b"}] = epoch.Add(-time.Minute) },
			"import b False/Silent: no cluster takes further requests: b (silent)\nholds [b] \"\""},
		{"a silent cluster that had begun to withdraw", func(f *facts) {
			f.has("b").entry.Conditions = []condition{{Type: typeAccepted, Status: "False", Message: "no cluster takes further requests: b (draining)", Since: epoch}}
			f.member("b", true).Silent = true
			f.memory.lost[subject{llama, "b"}] = epoch.Add(-time.Minute - 9*time.Second)
		}, "import b False/Draining: no cluster takes further requests: b (draining)\nholds [b] \"\""},
		{"it is dropped after the drain time and two leases", func(f *facts) {
			f.has("b").entry.Conditions = []condition{{Type: typeAccepted, Status: "False", Message: "no cluster takes further requests: b (draining)", Since: epoch}}
			f.member("b", true).Silent = true
			f.memory.lost[subject{llama, "b"}] = epoch.Add(-time.Minute - 10*time.Second)
		}, ""},
		{"a cluster that serves other pools states nothing about this one", func(f *facts) {
			f.has("b")
			f.member("b", false).Served = []Name{{"prod", "qwen"}}
		}, "import b False/Silent: no cluster takes further requests: b (silent)\nholds [b] \"\""},
		{"an older release states nothing about a pool that it never exported", func(f *facts) {
			f.has("b")
			m := f.member("b", false)
			m.Served, m.ServedKnown = nil, false
		}, "import b False/Silent: no cluster takes further requests: b (silent)\nholds [b] \"\""},
		{"an older release withdraws by leaving out an export", func(f *facts) {
			f.has("b")
			m := f.member("b", false)
			m.Served, m.ServedKnown = nil, false
			f.memory.claims[subject{llama, "b"}] = true
		}, ""},
		{"before others were heard nothing goes", func(f *facts) { f.has("b"); f.member("b", false); f.Settled = false },
			""},
		{"a member names itself twice, and us", func(f *facts) { f.member("b", true); f.member("b", true); f.member("a", true); f.member("", true) },
			"import b True/Accepted: exported by b\nholds [] \"\""},
		{"a member exports what cannot be", func(f *facts) {
			f.member("b", false).Exports = []Export{{Name: Name{"../../secrets", "x"}}, {Name: Name{"prod", "a/b"}}, {Name: Name{"Prod", "x"}}, {Name: Name{"prod", ""}}, {Name: Name{"prod", "a..b"}}, {Name: Name{"", "x"}}}
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := given(tc.change)
			p := desired(f)
			if diff := cmp.Diff(tc.want, told(p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// After two rounds, nothing is left to do.
			f.apply(p)
			f.apply(desired(f))
			before := told(desired(f))
			f.apply(desired(f))
			if diff := cmp.Diff(before, told(desired(f))); diff != "" {
				t.Errorf("plan does not settle (-before +after):\n%s", diff)
			}
			if len(f.names()) > 3 {
				t.Errorf("objects with invalid names: %v", f.names())
			}
		})
	}
}

// apply applies a plan to the objects.
func (f *facts) apply(p plan) {
	for n, e := range p.parents {
		f.pools[n].entry = e
	}
	for n, e := range p.imports {
		if e == nil {
			delete(f.imports, n)
			continue
		}
		f.imports[n] = &import_{Name: n, made: true, entry: e}
	}
}

// TestOtherGroups: a group does not change the import of another group's pool, even if it receives
// its exporter's statements. Only an entry that takes no requests for longer than all limits is
// removed, because a living group would not leave it in that state.
func TestOtherGroups(t *testing.T) {
	qwen := Name{"prod", "qwen"}
	for _, tc := range []struct {
		name    string
		change  func(*facts, *import_)
		planned bool
	}{
		{"heard", func(f *facts, _ *import_) { f.member("b", true) }, false},
		{"silent", func(f *facts, _ *import_) { f.member("b", true).Silent = true }, false},
		{"not a member", func(*facts, *import_) {}, false},
		{"withdrawn explicitly", func(f *facts, _ *import_) { f.member("b", true).Served = []Name{llama, qwen} }, true},
		{"created by this group", func(f *facts, i *import_) { i.group = llama.String() }, true},
		{"without requests for long", func(f *facts, i *import_) {
			i.entry.Conditions = []condition{{Type: typeAccepted, Status: "False", Since: epoch.Add(-62 * time.Minute)}}
		}, true},
		{"without requests for a while", func(f *facts, i *import_) {
			i.entry.Conditions = []condition{{Type: typeAccepted, Status: "False", Since: epoch.Add(-time.Hour)}}
		}, false},
	} {
		f := given(func(f *facts) {
			i := f.has("b")
			delete(f.imports, llama)
			i.Name, i.group = qwen, qwen.String()
			f.imports[qwen] = i
			tc.change(f, i)
		})
		if _, planned := desired(f).imports[qwen]; planned != tc.planned {
			t.Errorf("%s: planned = %t, want %t", tc.name, planned, tc.planned)
		}
	}
}

// TestUnsettled: a pool's entry stays until other clusters have sent their statements.
func TestUnsettled(t *testing.T) {
	c := condition{Type: typeExported, Status: "True", Reason: reasonExported, Message: "exported to a, b", Since: epoch}
	f := given(func(f *facts) {
		f.asks(ClusterSet)
		f.pools[llama].entry = parentOf(DefaultController, llama, c)
		f.member("b", false).Silent = true
		f.Settled = false
	})
	if got := desired(f).parents[llama]; !got.equals(f.pools[llama].entry) {
		t.Errorf("entry is %+v", got)
	}
	f.pools[llama].entry = nil
	if got := told(desired(f)); !strings.HasPrefix(got, "pool False/Pending: no message from other clusters yet") {
		t.Error(got)
	}
}

// TestTransitions: a condition keeps the time of its last change of status.
func TestTransitions(t *testing.T) {
	f := given(func(f *facts) {
		f.asks(ClusterSet)
		f.has("a")
		f.member("b", false, "a")
	})
	f.pools[llama].entry = parentOf(DefaultController, llama, condition{Type: typeExported, Status: "False", Reason: reasonPending, Since: epoch.Add(-time.Hour)})
	if c := desired(f).parents[llama].Conditions[0]; c.Status != "True" || !c.Since.Equal(epoch) {
		t.Errorf("condition became %+v", c)
	}
	f.pools[llama].entry.Conditions[0].Status = "True"
	if c := desired(f).parents[llama].Conditions[0]; !c.Since.Equal(epoch.Add(-time.Hour)) {
		t.Errorf("transition time is %v", c.Since)
	}
}

// TestLater: a plan has the time at which it changes.
func TestLater(t *testing.T) {
	f := given(func(f *facts) {
		f.has("a", "b", "c").entry.Conditions = []condition{{Type: typeDraining, Status: "True", Since: epoch.Add(-10 * time.Second)}}
		f.memory.lost[subject{llama, "b"}], f.memory.lost[subject{llama, "c"}] = epoch.Add(-59*time.Minute-30*time.Second), epoch
	})
	if got := desired(f).later; !got.Equal(epoch.Add(30 * time.Second)) {
		t.Errorf("plans again at %v", got)
	}
}

// TestManyExports: a malicious member cannot create more objects than the limit.
func TestManyExports(t *testing.T) {
	f := given(func(f *facts) {
		m := f.member("b", false)
		for i := range 10_000 {
			m.Exports = append(m.Exports, Export{Name: Name{"prod", fmt.Sprint("x", i)}})
		}
	})
	p := desired(f)
	if n := len(p.imports); n != defaultExports {
		t.Errorf("%d imports, want %d", n, defaultExports)
	}
	over := slices.DeleteFunc(p.local.Holds, func(h FoundImport) bool { return h.Problem == "" })
	if len(over) != defaultExports || over[0].Problem != "it imports at most 128 pools of a cluster" {
		t.Errorf("exports beyond the limit: %d with %+v, want %d with the limit", len(over), over[:1], defaultExports)
	}
}

// TestWithEntry: other entries stay byte for byte and in order.
func TestWithEntry(t *testing.T) {
	r := reader{DefaultController}
	raw := func(list ...string) (out []json.RawMessage) {
		for _, s := range list {
			out = append(out, json.RawMessage(s))
		}
		return out
	}
	ours, gw, odd := `{"controllerName":"`+DefaultController+`","parentRef":7}`, `{"parentRef":{"name":"gw"},  "x":1}`, `"?"`
	e := parentOf(DefaultController, llama, condition{Type: typeExported, Status: "True", Since: epoch})
	mine, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	full := make([]json.RawMessage, maxParents)
	for i := range full {
		full[i] = json.RawMessage(gw)
	}
	for _, tc := range []struct {
		name string
		list []json.RawMessage
		e    *parent
		want []json.RawMessage
		err  error
	}{
		{"first", nil, e, raw(string(mine)), nil},
		{"added", raw(gw, odd), e, raw(gw, odd, string(mine)), nil},
		{"replaced in its place", raw(gw, ours, odd), e, raw(gw, string(mine), odd), nil},
		{"once", raw(ours, gw, ours), e, raw(string(mine), gw), nil},
		{"removed", raw(gw, ours, ours), nil, raw(gw), nil},
		{"the last", raw(ours), nil, nil, nil},
		{"full", full, e, nil, errFull},
		{"full, with ours", append(slices.Clone(full[1:]), json.RawMessage(ours)), e, append(slices.Clone(full[1:]), mine), nil},
	} {
		got, err := r.withEntry(tc.list, tc.e)
		if diff := cmp.Diff(tc.want, got); diff != "" || !errors.Is(err, tc.err) {
			t.Errorf("%s: %v (-want +got):\n%s", tc.name, err, diff)
		}
	}
}

// FuzzObjects: for any object, other entries are never lost and ours is found again.
func FuzzObjects(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"p","namespace":"n"},"status":{"parents":[{"controllerName":"grapevine-epp.github.io/federation","conditions":7},{}]}}`))
	f.Add([]byte(`{"metadata":{"annotations":{"inference.networking.x-k8s.io/export":"ClusterSet"}},"status":{"controllers":[{"name":"grapevine-epp.github.io/federation"},7,null]}}`))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, raw []byte) {
		r := reader{DefaultController}
		if _, err := r.imported(raw); err == nil && !json.Valid(raw) {
			t.Error("decoded an import from invalid JSON")
		}
		p, err := r.pool(raw)
		if err != nil {
			return
		}
		e := parentOf(r.controller, p.Name, condition{Type: typeExported, Status: "True", Since: epoch})
		list, err := r.withEntry(p.parents, e)
		if errors.Is(err, errFull) {
			return
		}
		body, err2 := json.Marshal(map[string]any{"status": map[string]any{"parents": list}})
		again, err3 := r.pool(body)
		if err != nil || err2 != nil || err3 != nil || again.entries != 1 || len(list)-1 != len(p.parents)-p.entries || !again.entry.equals(e) {
			t.Errorf("%v %v %v: %s became %s", err, err2, err3, p.parents, list)
		}
	})
}
