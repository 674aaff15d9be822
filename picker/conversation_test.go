package picker

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestConversations: a follow-up to a stored response is sent only to the engine that stores it,
// even if that engine is busy or unhealthy. Unknown responses are counted.
func TestConversations(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := newScheduler(t, Options{Pool: newPool(4), Registerer: reg})
	first := chatRequest("first", 100)
	first.Kind, first.Stream = request.KindResponses, false
	d, err := s.Choose(context.Background(), first)
	if err != nil {
		t.Fatal(err)
	}
	if !d.WantBody {
		t.Error("the response's id is not read")
	}
	keeper := d.Endpoints[0]
	d.Observe(request.Event{Kind: request.EventHeaders, At: t0, Status: 200})
	d.Observe(request.Event{Kind: request.EventStored, At: t0, ResponseID: "resp_1"}) // in progress: a client may cancel it already

	goOn := func(path, body string) []string {
		t.Helper()
		r := &request.Request{ID: "next", Path: path, Headers: noHeaders{}, Body: []byte(body)}
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		d, err := s.Choose(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		return d.Endpoints
	}
	ep := s.opts.Pool.Snapshot().Lookup(keeper)
	sick := health.NewSet(health.Options{})
	for _, e := range s.opts.Pool.Snapshot().Endpoints {
		sick.Join(int(e.ID), "m", t0)
	}
	for i := range 20 {
		e := health.Evidence{Answered: health.Never, Moved: health.Never}
		e.Bad[health.Failed] = uint64(i)
		sick.Receive("", int(ep.ID), e, t0)
		sick.Step(t0)
	}
	s.opts.Pool.SetHealth(sick.Snapshot())
	if !ep.Down() {
		t.Fatal("the engine is not out")
	}
	for _, c := range []struct{ path, body string }{
		{"/v1/responses", `{"model":"m","input":"more","previous_response_id":"resp_1"}`},
		{"/v1/responses/resp_1", ""},
		{"/v1/responses/resp_1/cancel?x=1", ""},
	} {
		if got := goOn(c.path, c.body); len(got) != 1 || got[0] != keeper {
			t.Errorf("%s goes to %v, want %s alone", c.path, got, keeper)
		}
	}
	if got := goOn("/v1/responses/resp_2", ""); len(got) < 2 || got[0] == keeper {
		t.Errorf("an unknown conversation goes to %v", got)
	}
	var rest []endpoint.Spec
	for _, spec := range specs(4) {
		if spec.Addr.String() != keeper {
			rest = append(rest, spec)
		}
	}
	s.opts.Pool.Set(rest)
	if got := goOn("/v1/responses/resp_1", ""); len(got) < 2 {
		t.Errorf("what an engine that is gone kept goes to %v", got)
	}
	want := `
# HELP grapevine_picker_conversations_total Placed requests that continue a response stored by one engine, by whether that engine is known and available.
# TYPE grapevine_picker_conversations_total counter
grapevine_picker_conversations_total{result="found"} 3
grapevine_picker_conversations_total{result="gone"} 1
grapevine_picker_conversations_total{result="unknown"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "grapevine_picker_conversations_total"); err != nil {
		t.Error(err)
	}
}

type noHeaders struct{}

func (noHeaders) Get(string) string { return "" }
