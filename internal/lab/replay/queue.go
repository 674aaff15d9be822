package replay

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/programs/admission"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Intervals of the replicas' queue processing, as in the daemon: they check the pool, send changes,
// and periodically send a heartbeat, so that silence indicates a failure.
const (
	queueEvery = 20 * time.Millisecond
	queueBeat  = 12 // of queueEvery

	// maxForgotten is after how many looks requests that wait for idle engines count as
	// never answered: two hours.
	maxForgotten = 360_000
)

// queue is where the requests of one replica wait: the daemon's gate, on the run's clock.
// To the scheduler it is a gate that hands out the place which the request has got already.
type queue struct {
	*gate.Gate
	permit picker.Permit
}

// Enter implements picker.Gate.
func (q *queue) Enter(context.Context, *request.Request) (picker.Permit, picker.QueueEntry, error) {
	return q.permit, nil, nil
}

// admissions is the daemon's gate of agent runs in front of a replica's queue. To the scheduler it is
// a gate that hands out the permits which the request has got already.
type admissions struct {
	*admission.Gate
	queue  *queue // nil: requests do not wait there
	permit picker.Permit
}

// Enter implements picker.Gate.
func (a *admissions) Enter(context.Context, *request.Request) (picker.Permit, picker.QueueEntry, error) {
	return a.permit, nil, nil
}

// Leave implements picker.Gate.
func (a *admissions) Leave(p picker.Permit, service float64) {
	if a.Gate.Leave(picker.Permit{Program: p.Program}, service); a.queue != nil {
		a.queue.Leave(p, service)
	}
}

// newAdmissions returns the gate that a policy has, nil when it does not admit agent runs.
func newAdmissions(s *simulation, pool *endpoint.Pool, q *queue) (*admissions, error) {
	if s.Policy.Programs == nil {
		return nil, nil
	}
	config, err := s.Policy.Programs()
	if err != nil || config == nil {
		return nil, err
	}
	g, err := admission.New(admission.Options{Pool: pool, Next: new(queue), Now: s.clock})
	if err != nil {
		return nil, err
	}
	g.Configure(config)
	return &admissions{Gate: g, queue: q}, nil
}

// admit asks for the admission of a request's program. It reports whether the request may go on.
func (s *simulation) admit(j *journey) bool {
	a := j.replica.admissions
	if a == nil {
		return true
	}
	r := &s.Trace.Requests[j.number]
	j.request.FairnessID = s.Trace.TenantName(r.Tenant)
	p, waits := a.Offer(&j.request, func() { s.admitted = append(s.admitted, j) })
	if j.permit = p; waits {
		s.waiting++
		s.rearm()
	}
	return !waits
}

// rearm starts the ticks of queues.
func (s *simulation) rearm() {
	if s.tick == never {
		s.tick = s.now + queueEvery
	}
}

// newQueue returns the queue that a policy has, nil when requests do not wait.
func newQueue(s *simulation, pool *endpoint.Pool) (*queue, error) {
	if s.Policy.Queue == nil {
		return nil, nil
	}
	config, err := s.Policy.Queue()
	if err != nil || config == nil {
		return nil, err
	}
	g, err := gate.New(gate.Options{Pool: pool, Now: s.clock})
	if err != nil {
		return nil, err
	}
	g.Configure(config)
	return &queue{Gate: g}, nil
}

// turn is a request that has left the queue.
type turn struct {
	j   *journey
	err error // why it may not go on; nil: it may
}

// enqueue requests a permit from the replica's queue.
func (s *simulation) enqueue(j *journey) error {
	s.rearm()
	r := &s.Trace.Requests[j.number]
	j.request.FairnessID, j.request.Priority = s.Trace.TenantName(r.Tenant), int(r.Priority)
	if r.Priority < 0 && s.Network.BytesPerSecond == 0 {
		j.request.Evict = func() { s.evicted = append(s.evicted, j) }
	}
	s.waiting++
	permit, waits, err := j.replica.queue.Offer(context.Background(), &j.request, func(err error) {
		s.turns = append(s.turns, turn{j, err})
	})
	permit.Program = j.permit.Program
	j.permit = permit
	if waits {
		return nil
	}
	return s.proceed(turn{j, err})
}

// takeTurns places dispatched requests and ends evicted ones.
func (s *simulation) takeTurns() error {
	for len(s.turns)+len(s.evicted)+len(s.admitted) > 0 {
		if len(s.admitted) > 0 {
			j := s.admitted[0]
			s.admitted = s.admitted[1:]
			s.waiting--
			j.replica.catchUp(s.now)
			if err := s.proceedToQueue(j); err != nil {
				return err
			}
			continue
		}
		if n := len(s.evicted); n > 0 {
			j := s.evicted[n-1]
			s.evicted = s.evicted[:n-1]
			s.evict(j)
			continue
		}
		t := s.turns[0]
		s.turns = s.turns[1:]
		if err := s.proceed(t); err != nil {
			return err
		}
	}
	return nil
}

// proceed continues a request that does not wait, or no longer waits.
func (s *simulation) proceed(t turn) error {
	s.waiting--
	if t.err != nil {
		if a := t.j.replica.admissions; a != nil {
			a.Gate.Leave(picker.Permit{Program: t.j.permit.Program}, -1)
		}
		return s.refused(t.j, t.err)
	}
	t.j.replica.catchUp(s.now)
	return s.place(t.j)
}

// evict ends a request that an engine serves.
func (s *simulation) evict(j *journey) {
	id := uint64(j.number) + 1
	if s.flying[id] != j {
		return // the request has ended already
	}
	delete(s.flying, id)
	st := &s.stations[j.station]
	st.core.Abort(id)
	st.forget(j)
	s.outcomes[j.number] = Outcome{Endpoint: -1, Error: evictedText}
	s.ended(j.number)
	j.decision.Done(request.Outcome{At: s.clock(), Status: 429, Served: j.decision.Endpoints[0], Evicted: true})
	j.decision = nil
}

const evictedText = "request evicted by flow control"

// ticked makes every replica check its queue and publish the state.
func (s *simulation) ticked() {
	s.ticks++
	for _, r := range s.replicas {
		if r.admissions != nil {
			r.admissions.Poll()
		}
		if r.queue == nil {
			continue
		}
		r.catchUp(s.now)
		r.queue.Poll()
		r.queue.Changes(s.ticks%queueBeat == 0, func(model string, gauges []rules.Gauge) {
			r.publish(message{kind: queueMessage, model: model, gauges: gauges})
		})
	}
	if s.forgotten++; len(s.flying)+len(s.moving) > 0 {
		s.forgotten = 0
	}
	if s.tick = s.now + queueEvery; s.forgotten > maxForgotten || s.waiting == 0 && s.forgotten > 0 {
		s.tick = never
	}
}

// forget removes a journey from the station's decoding list.
func (s *station) forget(j *journey) {
	for k, other := range s.decoding {
		if other == j {
			last := len(s.decoding) - 1
			s.decoding[k], s.decoding[last] = s.decoding[last], nil
			s.decoding = s.decoding[:last]
			return
		}
	}
}
