package plugins

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// urgencyAt returns the priority that the plugin with the given parameters sends for a request with
// the expected prefill time own, in seconds.
func urgencyAt(t *testing.T, f *fleet, params string, r *request.Request, own float64, endpoints ...string) (int64, bool) {
	t.Helper()
	c := f.cycle(r)
	defer c.Free()
	return build(t, "engine-priority-producer", params).Producer.Urgency(c, endpoints, own)
}

// A priority is sent if all possible endpoints of the request are configured for it, for request
// kinds that have one. It replaces a client's own priority only if that is configured.
func TestUrgency(t *testing.T) {
	f := newFleet(one{labels: map[string]string{"queue": "priority"}}, one{labels: map[string]string{"queue": "fcfs"}})
	const declared, undeclared, unknown = "10.0.0.0:8000", "10.0.0.1:8000", "10.9.9.9:8000"
	const some, all = `{"matchLabels": {"queue": "priority"}}`, `{"everyEndpoint": true}`
	own := ask(100)
	own.Urgency = request.Span{3, 5}
	for _, c := range []struct {
		name, params string
		r            *request.Request
		endpoints    []string
		want         bool
	}{
		{"declared", some, ask(100), []string{declared}, true},
		{"not declared", some, ask(100), []string{undeclared}, false},
		{"a fallback is not declared", some, ask(100), []string{declared, undeclared}, false},
		{"not in the pool", some, ask(100), []string{unknown}, false},
		{"all are declared", all, ask(100), []string{declared, undeclared, unknown}, true},
		{"an expression", `{"matchExpressions": [{"key": "queue", "operator": "NotIn", "values": ["priority"]}]}`, ask(100), []string{undeclared}, true},
		{"the client's own", all, own, []string{declared}, false},
		{"over the client's own", `{"everyEndpoint": true, "overClients": true}`, own, []string{declared}, true},
		{"embeddings", all, &request.Request{Kind: request.KindEmbeddings}, []string{declared}, false},
		{"unknown requests", all, &request.Request{}, []string{declared}, false},
	} {
		got, ok := urgencyAt(t, f, c.params, c.r, 2, c.endpoints...)
		if want := t0.UnixMilli() + 16_000; ok != c.want || ok && got != want {
			t.Errorf("%s: %d, %v, want %d, %v", c.name, got, ok, want, c.want)
		}
	}
	if got, _ := urgencyAt(t, f, all, ask(100), 1e12, declared); got != t0.Add(24*time.Hour).UnixMilli() {
		t.Errorf("a prefill that takes for ever: %d", got)
	}
	for params, want := range map[string]string{
		``: "everyEndpoint", `{"everyEndpoint": true, "matchLabels": {"a": "b"}}`: "everyEndpoint",
		`{"everyEndpoint": true, "workWeight": -1}`: "workWeight", `{"everyEndpoint": true, "workWeight": 1001}`: "workWeight",
		`{"matchExpressions": [{"key": "a", "operator": "Is"}]}`: "operator",
	} {
		if _, err := try("engine-priority-producer", params); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a problem with %s", params, err, want)
		}
	}
}

// A later request goes first only if it has less prefill and arrived within workWeight times the
// other's prefill time. So no request is overtaken forever.
func TestUrgencyAges(t *testing.T) {
	f := newFleet(one{})
	rapid.Check(t, func(t *rapid.T) {
		weight, own, less, gap := rapid.Float64Range(.1, 100).Draw(t, "weight"), rapid.Float64Range(0, 60).Draw(t, "own"), rapid.Float64Range(0, 60).Draw(t, "other"), rapid.Float64Range(0, 600).Draw(t, "gap")
		p := urgencyDefaults
		p.EveryEndpoint, p.WorkWeight = true, weight
		u, err := newUrgency(p)
		if err != nil {
			t.Fatal(err)
		}
		c := f.cycle(ask(100))
		defer c.Free()
		first, _ := u.Producer.Urgency(c, nil, own)
		c.Now = c.Now.Add(time.Duration(gap * float64(time.Second)))
		second, _ := u.Producer.Urgency(c, nil, less)
		if second < first && (gap > weight*own+.002 || less >= own+.002/weight) {
			t.Fatalf("came %v s later with %v s of work and goes first of one with %v s", gap, less, own)
		}
	})
}
