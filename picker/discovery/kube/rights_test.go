package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// ruleOf is a rule in the form of the status.
func ruleOf(group, plural, verb string) string {
	return fmt.Sprintf("apiGroups [%q] resources [%q] verbs [%q]", group, plural, verb)
}

// TestMissingVerbIsNamed removes one read permission at a time. The status names its rule. Only a
// missing list of pods or pools is a problem, since without another one the list stays current.
func TestMissingVerbIsNamed(t *testing.T) {
	for _, x := range []struct {
		verb, plural, group string
		serves              bool
	}{
		{"list", "pods", "", false},
		{"watch", "pods", "", true},
		{"list", "inferencepools", GroupPool, false},
		{"watch", "inferencepools", GroupPool, true},
		{"get", "inferencepools", GroupPool, true},
		{"list", "inferenceobjectives", GroupNames, true},
		{"watch", "inferenceobjectives", GroupNames, true},
		{"list", "inferencemodelrewrites", GroupNames, true},
		{"watch", "inferencemodelrewrites", GroupNames, true},
	} {
		t.Run(x.verb+" "+x.plural, func(t *testing.T) {
			t.Parallel()
			api, server := newFakeAPI(t)
			api.pool("p", "vllm", 8000)
			api.pod("a", "10.0.0.1", "", "")
			api.deny(x.verb + " " + x.plural)
			v := openFake(t, server, Options{})
			if !x.serves {
				v.wantIn(problemsOf, ruleOf(x.group, x.plural, x.verb))
				return
			}
			v.want("10.0.0.1:8000")
			v.wantIn(notesOf, ruleOf(x.group, x.plural, x.verb))
			v.wantOK()
			if rules := v.Status().MissingRights; len(rules) != 1 || !strings.HasPrefix(rules[0], ruleOf(x.group, x.plural, x.verb)) {
				t.Errorf("missing rights %q, want one with %s", rules, ruleOf(x.group, x.plural, x.verb))
			}
			api.deny()
			if x.verb == "watch" {
				api.pod("b", "10.0.0.2", "", "")
				v.want("10.0.0.1:8000 10.0.0.2:8000")
			}
		})
	}
}

// TestChangesWithoutWatch: with permission to list only, changes of pods, pool and objectives
// appear.
func TestChangesWithoutWatch(t *testing.T) {
	t.Parallel()
	api, server := newFakeAPI(t)
	api.pool("p", "vllm", 8000)
	api.pod("a", "10.0.0.1", "", "")
	api.objective("o", 1)
	api.deny("watch pods", "watch inferencepools", "watch inferenceobjectives", "watch inferencemodelrewrites")
	v := openFake(t, server, Options{})
	v.want("10.0.0.1:8000")
	v.wantObjective("o", 1)
	api.pod("b", "10.0.0.2", "", "")
	api.pool("p", "vllm", 9000)
	api.objective("o", 2)
	v.want("10.0.0.1:9000 10.0.0.2:9000")
	v.wantObjective("o", 2)
	v.wantOK()
}

// TestDeletedPoolWithoutGet: without permission to get the pool, a list confirms its deletion.
func TestDeletedPoolWithoutGet(t *testing.T) {
	t.Parallel()
	api, server := newFakeAPI(t)
	api.pool("p", "vllm", 8000)
	api.pod("a", "10.0.0.1", "", "")
	api.deny("get inferencepools")
	v := openFake(t, server, Options{Grace: time.Second})
	v.want("10.0.0.1:8000")
	api.remove("inferencepools/p")
	v.want("")
	v.wantIn(problemsOf, "there is no such pool")
}

// TestMissingWriteIsNamed: the status names the rules of events and conditions that are refused.
func TestMissingWriteIsNamed(t *testing.T) {
	t.Parallel()
	api, server := newFakeAPI(t) // refuses every write
	api.pool("p", "vllm", 8000)
	api.pod("a", "169.254.1.1", "", "")
	api.objective("o", 1)
	v := openFake(t, server, Options{})
	v.wantIn(notesOf, ruleOf("events.k8s.io", "events", "create"))
	v.wantIn(notesOf, ruleOf(GroupNames, "inferenceobjectives/status", "patch"))
	v.wantOK()
	if rules := v.Status().MissingRights; len(rules) != 2 {
		t.Errorf("missing rights %q, want those of events and conditions", rules)
	}
}
