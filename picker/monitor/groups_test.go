package monitor

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// TestModelsApart: models that are distinguished only by their engines' lists are compared
// separately. So the few engines of one model are used although each is unhealthy.
func TestModelsApart(t *testing.T) {
	r := newRig(t, 1, 6)
	p := r.replicas[0]
	r.pass(time.Second, nil, nil)
	for i, ep := range p.pool.Snapshot().Endpoints {
		name := "many"
		if i >= 4 {
			name = "few"
		}
		p.pool.SetModels(ep.ID, endpoint.ModelList{Models: []endpoint.Model{{Name: "adapter" + ep.Address, Parent: name}, {Name: name}}}, r.now)
	}
	fails := func(_ int, ep *endpoint.Endpoint) {
		if ep.Base() == "few" {
			var w health.Watch
			ep.Tracker().Begin(&w, r.now, r.now.Add(time.Second))
			w.End(r.now, health.Failed)
		}
	}
	r.pass(3*time.Second, nil, fails)
	for i, ep := range p.pool.Snapshot().Endpoints {
		v := p.pool.Health().View(int(ep.ID))
		if v.Share != health.Full || v.Overruled != (i >= 4) {
			t.Errorf("endpoint %d of %s: %s with share %d, overruled %v", i, ep.Base(), v.State, v.Share, v.Overruled)
		}
	}
	if got := p.pool.Health().GroupProblems; len(got) != 1 || got[0].Group != "few" || got[0].Endpoints != 2 || got[0].Failing < .9 {
		t.Errorf("problems of the pool: %+v", got)
	}
}

// TestModelUnknown: an engine that has hung since before its list of models was read is
// compared with the others, and not with itself.
func TestModelUnknown(t *testing.T) {
	r := newRig(t, 1, 4)
	p := r.replicas[0]
	eps := p.pool.Snapshot().Endpoints
	for _, ep := range eps[1:] {
		p.pool.SetModels(ep.ID, endpoint.ModelList{Models: []endpoint.Model{{Name: "m"}}}, r.now)
	}
	r.pass(time.Second, nil, nil)
	var w [2]health.Watch
	for i := range w {
		eps[0].Tracker().Begin(&w[i], r.now, r.now.Add(time.Second))
	}
	r.pass(4*time.Second, nil, nil)
	if v := p.pool.Health().View(int(eps[0].ID)); v.State != health.Out || v.Share != 0 {
		t.Errorf("%s (%s) with share %d, overruled %v", v.State, v.Cause, v.Share, v.Overruled)
	}
}
