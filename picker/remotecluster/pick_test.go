package remotecluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// desk simulates cluster b's pickers.
type desk struct {
	t      *testing.T
	answer string
	err    error
	asked  []string // pickers asked
	ended  []int    // statuses
}

func (k *desk) pick(q *Question) (string, func(int), error) {
	k.asked = append(k.asked, q.EPP.HostPort)
	if q.Timeout <= askWork || q.Timeout > askMost {
		k.t.Errorf("Timeout = %s", q.Timeout)
	}
	if q.Cluster != "b" || len(q.Request.Body) == 0 || q.Token == "" {
		k.t.Errorf("asked %q with token %q and %d bytes", q.Cluster, q.Token, len(q.Request.Body))
	}
	if k.err != nil {
		return "", nil, k.err
	}
	return k.answer, func(status int) { k.ended = append(k.ended, status) }, nil
}

const (
	gatewayOfB = "192.0.2.98:80"
	firstOfB   = "198.51.100.1:8000"
	secondOfB  = "198.51.100.2:8000"
)

// asking is a world whose cluster b has two pickers and two reachable endpoints.
func asking(t *testing.T, change func(*federation.Remote)) (*world, *desk) {
	k := &desk{t: t, answer: secondOfB}
	w := newWorld(t, func(o *Options) {
		o.Mode, o.Asked = ModeEndpoint, func(cluster string) bool { return cluster == "b" }
	}, other("b", func(r *federation.Remote) {
		r.Direct = []string{firstOfB, secondOfB}
		r.EPPs = []federation.Address{{HostPort: "epp-1:9006"}, {HostPort: "epp-2:9006"}}
		r.Until = t0.Add(time.Hour)
		if change != nil {
			change(r)
		}
	}))
	w.asks = k.pick
	w.open(nil)
	w.busy(20)
	return w, k
}

func (w *world) goes(r *request.Request, to string) *request.Decision {
	w.t.Helper()
	w.busy(20)
	d, why, err := w.place(r)
	if err != nil || d.Endpoints[0] != to {
		w.t.Fatalf("request goes to %+v (%v) %v, want %s", d, err, why, to)
	}
	return d
}

// TestPick: in endpoint mode the remote cluster's picker chooses the endpoint and receives the
// outcome once. Local endpoints are the fallback.
func TestPick(t *testing.T) {
	w, k := asking(t, nil)
	for i, status := range []int{200, 500, 0} {
		d := w.goes(prompt(500, fmt.Sprint("pick", i)), secondOfB)
		if len(d.Endpoints) < 2 || d.Endpoints[1][:3] != "10." {
			t.Errorf("destinations %v, want local endpoints as fallback", d.Endpoints)
		}
		if len(d.SetHeaders) != 0 { // the token is in the question only, see desk.pick
			t.Errorf("headers for an engine of another cluster: %v, want none", d.SetHeaders)
		}
		if len(k.asked) != i+1 || len(k.ended) != i {
			t.Errorf("request %d: %d questions, %d outcomes reported", i, len(k.asked), len(k.ended))
		}
		d.Done(request.Outcome{At: w.now, Status: status, Complete: status > 0})
		w.now = w.now.Add(time.Minute) // earlier failures have expired
		for _, c := range w.view.Clusters {
			c.Pools[0].ReceivedAt = w.now
		}
	}
	d := w.goes(prompt(500, "moved"), secondOfB) // connection fails: a local endpoint serves it
	d.Observe(request.Event{Kind: request.EventHeaders, At: w.now, Status: 200, Served: d.Endpoints[1], Attempts: 2})
	if len(k.ended) != 4 {
		t.Errorf("%d outcomes reported, want one more once the request is served here", len(k.ended))
	}
	d.Done(request.Outcome{At: w.now, Status: 200, Complete: true, Served: d.Endpoints[1]})
	w.now = w.now.Add(time.Minute)
	if !slices.Equal(k.ended, []int{200, 500, 0, 0}) || w.fleet.counts.asked.Load() != 4 {
		t.Errorf("ends %v, %d asked", k.ended, w.fleet.counts.asked.Load())
	}
	w.busy(0)
	w.expect(prompt(50, "stays"), "b", "dearer")
	if _, err := w.s.Explain(context.Background(), prompt(500, "dry")); err != nil || len(k.asked) != 4 {
		t.Errorf("%d questions after a request that stays and a dry run (%v), want 4", len(k.asked), err)
	}
}

// TestPickFails: if no picker answers, or one returns an endpoint that was not announced or not
// allowed, a gateway gets the request. A picker that did not answer is not asked again immediately;
// then the next one is.
func TestPickFails(t *testing.T) {
	w, k := asking(t, nil)
	k.err = errors.New("nobody there")
	w.goes(prompt(500, "a"), gatewayOfB)
	w.goes(prompt(500, "b"), gatewayOfB)
	if !slices.Equal(k.asked, []string{"epp-1:9006"}) {
		t.Errorf("asked %v, want the first one once", k.asked)
	}
	w.now = w.now.Add(askPause)
	k.err = nil
	w.goes(prompt(500, "c"), secondOfB)
	if !slices.Equal(k.asked, []string{"epp-1:9006", "epp-2:9006"}) {
		t.Errorf("asked %v, want the second one next", k.asked)
	}

	w, k = asking(t, nil)
	k.answer = "203.0.113.7:8000" // not announced
	w.goes(prompt(500, "d"), gatewayOfB)
	if !slices.Equal(k.ended, []int{0}) {
		t.Errorf("ends %v, want the pick to be given back", k.ended)
	}

	w, k = asking(t, nil)
	r := prompt(500, "e")
	r.Subset, r.HasSubset = []string{firstOfB, gatewayOfB, "10.0.0.1:8000"}, true
	w.goes(r, gatewayOfB)
	if !slices.Equal(k.ended, []int{0}) {
		t.Errorf("ends %v, want the pick outside of the subset to be given back", k.ended)
	}

	w, k = asking(t, nil)
	k.err = Refused{503}
	w.goes(prompt(500, "f"), gatewayOfB)
	w.expect(prompt(500, "g"), "b", "saturated")

	w, k = asking(t, func(r *federation.Remote) { r.Gateways = nil })
	k.err = errors.New("nobody there")
	if d, _, err := w.place(prompt(500, "h")); err != nil || d.Endpoints[0] != firstOfB && d.Endpoints[0] != secondOfB {
		t.Errorf("request goes to %+v (%v), want a random endpoint without a gateway", d, err)
	}

	w, k = asking(t, func(r *federation.Remote) { r.EPPs = nil })
	if d, _, err := w.place(prompt(500, "i")); err != nil || len(k.asked) != 0 || d.Endpoints[0] == gatewayOfB {
		t.Errorf("request goes to %+v (%v) after %d questions, want a random endpoint and no question", d, err, len(k.asked))
	}
}
