package remotecluster

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// gate predicts waits of that many seconds, or refuses requests.
type gate struct {
	waits   []float64 // successive predictions for one request
	refused error
	asked   int
	held    int // permits held

	withdrawn bool
}

func (g *gate) Enter(context.Context, *request.Request) (picker.Permit, picker.QueueEntry, error) {
	switch {
	case len(g.waits) > 0:
		return picker.Permit{Queue: 1, Handle: 1}, g, nil
	case g.refused != nil:
		return picker.Permit{}, nil, g.refused
	}
	g.held++
	return picker.Permit{Queue: 1, Handle: 1}, nil, nil
}

// Expected implements picker.QueueEntry.
func (g *gate) Expected() float64 {
	g.asked++
	return g.waits[0]
}

// Wait implements picker.QueueEntry.
func (g *gate) Wait(context.Context, time.Duration) (waits bool, err error) {
	if g.waits = g.waits[1:]; len(g.waits) > 0 {
		return true, nil
	}
	g.held++
	return false, nil
}

// Withdraw implements picker.QueueEntry.
func (g *gate) Withdraw() { g.withdrawn = true }

func (g *gate) Leave(p picker.Permit, _ float64) {
	if p.Handle != 0 {
		g.held--
	}
}

// TestRemoteWhileQueued: a request moves to a remote cluster if it would wait longer than it costs
// there, immediately or later, and also if it is refused here. Other requests keep their turn and
// are placed here.
func TestRemoteWhileQueued(t *testing.T) {
	full := request.Errorf(request.ReasonSaturated, "full")
	for _, c := range []struct {
		name    string
		waits   []float64
		refused error
		b       func(*federation.Remote)
		change  func(*Options)
		r       func(*request.Request)

		gone  bool
		asked int
		fails bool
	}{
		{name: "a short wait", waits: []float64{.05}, asked: 1},
		{name: "not known how long", waits: []float64{0}, asked: 1},
		{name: "a long wait", waits: []float64{10}, asked: 1, gone: true},
		{name: "longer than was said", waits: []float64{.05, .1, 3, 5}, asked: 3, gone: true},
		{name: "there it would wait as well", waits: []float64{10}, asked: 1, b: func(r *federation.Remote) { r.Load.Wait, r.Load.MeanWait = 12*time.Second, 12*time.Second }},
		{name: "it came from there", waits: []float64{10}, asked: 1, r: func(r *request.Request) { r.Headers = headers{request.HeaderHop: "x"} }},
		{name: "not named", waits: []float64{10}, asked: 1, change: func(o *Options) { o.Use = UseNamed }},
		{name: "not in the subset", waits: []float64{10}, asked: 1, r: func(r *request.Request) { r.Subset, r.HasSubset = []string{"10.0.0.1:8000"}, true }},
		{name: "not to be served here", waits: []float64{.01}, asked: 1, gone: true, r: func(r *request.Request) { r.Clusters = "b" }},
		{name: "silent", waits: []float64{10}, asked: 1, b: func(r *federation.Remote) { r.Until = t0 }},
		{name: "refused here", refused: full, gone: true},
		{name: "refused here, and nobody else is there", refused: full, fails: true, b: func(r *federation.Remote) { r.Until = t0 }},
		{name: "a bad request", refused: request.Errorf(request.ReasonBadRequest, "bad"), fails: true},
		{name: "waited as long as it may", refused: request.Errorf(request.ReasonTTLExpired, "over"), fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &gate{waits: c.waits, refused: c.refused}
			w := newWorld(t, c.change, other("b", c.b))
			w.open(g)
			r := prompt(500, "p")
			if c.r != nil {
				c.r(r)
			}
			d, err := w.s.Choose(context.Background(), r)
			if c.fails != (err != nil) || g.asked != c.asked {
				t.Fatalf("%v, asked %d times, want %d", err, g.asked, c.asked)
			}
			if c.fails {
				if !errors.Is(err, c.refused) || w.s.Records().Last(1) != nil {
					t.Errorf("refused with %v, records %v", err, w.s.Records().Last(1))
				}
				return
			}
			if gone := d.Endpoints[0] == "192.0.2.98:80"; gone != c.gone || c.gone == (g.held == 1) {
				t.Fatalf("request goes to %v and holds %d permits", d.Endpoints, g.held)
			}
			standsBy := slices.Contains(d.Endpoints, "10.0.0.1:8000") || slices.Contains(d.Endpoints, "10.0.0.2:8000")
			if c.gone && standsBy != (c.refused == nil && r.Clusters == "") {
				t.Errorf("destinations %v", d.Endpoints)
			}
			if g.withdrawn != (c.gone && c.refused == nil) {
				t.Errorf("request withdrawn from the queue: %v", g.withdrawn)
			}
			if c.gone && w.stayed != 0 {
				t.Error("request was recorded as served here")
			}
			d.Done(request.Outcome{At: w.now, Status: 200, Complete: true, Served: d.Endpoints[0]})
			if g.held != 0 {
				t.Errorf("%d permits held at the end", g.held)
			}
		})
	}
}

// TestQueueHere: requests queued before the engines are announced as a wait, and above a limit as
// saturation.
func TestQueueHere(t *testing.T) {
	e := federation.Export{Load: federation.Load{Wait: time.Second, MeanWait: 2 * time.Second, Saturation: .2}}
	Queue(&e, 5)
	if l := e.Load; l.Wait != 6*time.Second || l.MeanWait != 7*time.Second || l.Saturation < .449 || l.Saturation > .451 {
		t.Errorf("%+v", l)
	}
	Queue(&e, 1e9)
	if l := e.Load; l.Saturation != 1 || l.Wait > 2*time.Hour {
		t.Errorf("%+v", l)
	}
}

// TestTrustAndClusters: the list of allowed clusters in a header decides where a trusted client's
// request is served, and that of an untrusted client only if the operator allows it.
func TestTrustAndClusters(t *testing.T) {
	for _, c := range []struct {
		name    string
		trusted bool
		limits  request.Limits
		remote  bool
	}{
		{name: "trusted", trusted: true, remote: true},
		{name: "untrusted"},
		{name: "untrusted, and it is allowed", limits: request.Limits{Clusters: true}, remote: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil, other("b", nil))
			r := &request.Request{Headers: headers{request.HeaderClusters: "b"}, Path: "/v1/completions", Body: []byte(`{"model":"m","prompt":"hi"}`)}
			if err := request.Parse(r); err != nil {
				t.Fatal(err)
			}
			trust := &request.Trust{Proxies: []string{"trusted"}, Others: c.limits}
			trust.Apply(r, map[bool][]string{true: {"trusted"}}[c.trusted], nil)
			d, err := w.s.Choose(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if remote := d.Endpoints[0] == "192.0.2.98:80"; remote != c.remote {
				t.Errorf("request goes to %v", d.Endpoints)
			}
		})
	}
}
