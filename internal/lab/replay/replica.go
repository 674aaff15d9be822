package replay

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/sessions"
	"github.com/grapevine-epp/grapevine/picker/sizing"
)

// costEvery is the interval at which replicas share learned costs.
const costEvery = time.Second

// shared is the data that all replicas receive with the same delay: cache events of engines, and
// messages between replicas.
type shared struct {
	blocks  int
	delay   time.Duration // of cache events
	known   *residency
	changes []cacheChange // not yet known, from changed on
	changed int
	log     []message // in order of time
	names   []string  // of sessions
}

func newShared(c *Case) *shared {
	sh := &shared{blocks: c.Trace.Blocks, delay: c.IndexDelay, names: make([]string, c.Trace.Sessions)}
	engines := c.Endpoints
	if c.Index == Approximate {
		engines = 0
	}
	sh.known = newResidency(c.Trace.Blocks, engines, c.Engine.Host.Blocks > 0)
	return sh
}

func (sh *shared) sessionName(session int32) string {
	if sh.names[session] == "" {
		sh.names[session] = "s" + strconv.Itoa(int(session))
	}
	return sh.names[session]
}

// advance applies the changes that are due by now.
func (sh *shared) advance(now time.Duration) {
	for sh.changed < len(sh.changes) && sh.changes[sh.changed].at+sh.delay <= now {
		if sh.known.engines > 0 {
			sh.known.change(sh.changes[sh.changed])
		}
		sh.changed++
	}
	if sh.changed > 4096 && sh.changed*2 > len(sh.changes) {
		n := copy(sh.changes, sh.changes[sh.changed:])
		sh.changes, sh.changed = sh.changes[:n], 0
	}
}

type messageKind uint8

const (
	loadMessage messageKind = iota
	recordMessage
	sessionMessage
	costMessage
	queueMessage
)

// message is a message from one replica to the others.
type message struct {
	at       time.Duration
	from     int
	kind     messageKind
	endpoint *endpoint.Endpoint // the sender's
	load     endpoint.Load
	cost     endpoint.Cost
	keys     blockKeys
	session  sessions.Binding
	model    string
	gauges   []rules.Gauge
}

// replica is one endpoint picker: its own pool, load tracker, sessions and learned costs.
type replica struct {
	number    int
	sim       *simulation
	pool      *endpoint.Pool
	scheduler *picker.Scheduler
	sessions  *sessions.Table
	match     *matcher
	meter     *sizing.Meter // nil: not measured
	queue     *queue        // nil: requests do not wait
	// admissions is nil if programs are not kept.
	admissions *admissions
	specs      []endpoint.Spec      // by station
	endpoints  []*endpoint.Endpoint // by station
	stationOf  []int                // by dense id
	placing    *journey             // the request being placed
	warming    int                  // running warm-ups

	processed int               // number of log messages processed
	hearing   time.Duration     // when the message that is being processed arrived
	remote    [][]endpoint.Load // by station and origin
	costs     [][]endpoint.Cost
	taught    time.Duration
}

func newReplica(number int, s *simulation) (*replica, error) {
	r := &replica{number: number, sim: s, sessions: sessions.New(0)}
	// Engines that leave keep their ids, however late they return.
	r.pool = endpoint.NewPool(endpoint.PoolOptions{Now: r.clock, Prior: s.Prior, Keep: s.Trace.Length + 1, Zone: s.zone(number)})
	specs := make([]endpoint.Spec, s.Endpoints)
	for i := range specs {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)
		specs[i] = endpoint.Spec{Name: fmt.Sprintf("engine-%d", i), Addr: addr}
		specs[i].Labels = s.labels(i)
	}
	r.pool.Set(specs)
	r.specs = specs
	r.endpoints = r.pool.Snapshot().Endpoints // in order of address, like stations
	r.stationOf = make([]int, s.Endpoints)
	for i, ep := range r.endpoints {
		r.stationOf[ep.ID] = i
		ep.SetPriorCost(s.Prior)
	}
	r.remote, r.costs = perOrigin[endpoint.Load](s), perOrigin[endpoint.Cost](s)
	r.match = &matcher{replica: r, approx: newApprox(&s.Case)}
	if s.Replicas > 1 && s.Share >= 0 {
		r.pool.LoadTracker().OnChange(r.bookChanged)
		r.sessions.OnBind(func(b sessions.Binding) { r.publish(message{kind: sessionMessage, session: b}) })
	}
	rules, err := s.Policy.Rules()
	if err != nil {
		return nil, err
	}
	rules.Names.Objectives = priorities(s.Trace)
	if s.Urgency > 0 && rules.Urgency == nil {
		if rules.Urgency, err = urgency(s.Urgency); err != nil {
			return nil, err
		}
	}
	if s.Target != nil {
		r.meter = sizing.NewMeter(r.pool, *s.Target, s.clock)
	}
	o := picker.Options{
		Sizing: r.meter, Pool: r.pool, Rules: rules, Matcher: r.match, Sessions: r.sessions,
		WarmUps: picker.WarmUps{Takes: r.takesWarmUp, Send: r.warmUp}, SampleBodies: -1, Records: picker.Retention{Bytes: -1}, Seed: s.Seed<<8 + uint64(number) + 1, Now: s.clock,
	}
	if r.queue, err = newQueue(s, r.pool); err != nil {
		return nil, err
	}
	if r.queue != nil {
		o.Gate = r.queue
	}
	if r.admissions, err = newAdmissions(s, r.pool, r.queue); err != nil {
		return nil, err
	}
	if r.admissions != nil {
		o.Gate = r.admissions
		r.sessions.OnMerge(func(b sessions.Binding) { r.admissions.Seen(b.Session) })
	}
	r.scheduler, err = picker.New(o)
	return r, err
}

// priorities returns objectives for all priorities of a trace, by the names that requests
// call them.
func priorities(t *trace.Trace) map[string]int {
	out := map[string]int{}
	for i := range t.Requests {
		if p := t.Requests[i].Priority; p != 0 {
			out[objective(p)] = int(p)
		}
	}
	return out
}

// objective is the name of a priority.
func objective(priority int32) string {
	if priority == 0 {
		return ""
	}
	return strconv.Itoa(int(priority))
}

func perOrigin[T any](s *simulation) [][]T {
	out := make([][]T, s.Endpoints)
	for i := range out {
		out[i] = make([]T, s.Replicas)
	}
	return out
}

// index returns the station behind an address.
func (r *replica) index(address string) int {
	return r.stationOf[r.pool.Snapshot().Lookup(address).ID]
}

func (r *replica) bookChanged(ep *endpoint.Endpoint) {
	r.publish(message{kind: loadMessage, endpoint: ep, load: r.pool.LoadTracker().Local(ep, r.sim.clock())})
}

// publish sends a message to the other replicas.
func (r *replica) publish(m message) {
	if r.sim.Replicas == 1 || r.sim.Share < 0 {
		return
	}
	m.at, m.from = r.sim.now, r.number
	if m.kind == recordMessage {
		m.keys = append(blockKeys(nil), m.keys...)
	}
	r.sim.shared.log = append(r.sim.shared.log, m)
}

// catchUp processes the events and messages that are due by now.
func (r *replica) catchUp(now time.Duration) {
	sh := r.sim.shared
	sh.advance(now)
	r.teach(now)
	for ; r.processed < len(sh.log) && sh.log[r.processed].at+r.sim.Share <= now; r.processed++ {
		if m := &sh.log[r.processed]; m.from != r.number {
			r.hearing = m.at + r.sim.Share
			r.hear(m)
			r.hearing = 0
		}
	}
}

// clock returns the time of the pool: now, or when the message that is being processed arrived.
// Messages are processed late, before the next decision.
func (r *replica) clock() time.Time {
	if r.hearing > 0 {
		return epoch.Add(r.hearing)
	}
	return r.sim.clock()
}

func (r *replica) hear(m *message) {
	switch m.kind {
	case loadMessage:
		i := r.station(m.endpoint)
		r.remote[i][m.from] = m.load
		var sum endpoint.Load
		for _, l := range r.remote[i] {
			sum = sum.Add(l)
		}
		r.pool.LoadTracker().SetRemote(r.endpoints[i], sum)
	case recordMessage:
		r.match.approx.Record(r.endpoints[r.station(m.endpoint)].ID, m.keys, epoch.Add(m.at).UnixNano())
	case sessionMessage:
		r.sessions.Merge(m.session)
	case queueMessage:
		r.queue.Receive(strconv.Itoa(m.from), m.model, m.gauges)
	case costMessage:
		i := r.station(m.endpoint)
		r.costs[i][m.from] = m.cost
		r.endpoints[i].SetRemoteCost(endpoint.MeanCost(slices.Values(r.costs[i])))
	}
}

// station returns the station of another replica's endpoint: pools of equal
// content have equal ids.
func (r *replica) station(ep *endpoint.Endpoint) int { return r.stationOf[ep.ID] }

// teach sends this replica's learned costs to the others at intervals of costEvery.
func (r *replica) teach(now time.Duration) {
	if now-r.taught < costEvery {
		return
	}
	r.taught = now
	for _, ep := range r.endpoints {
		if c := ep.LocalCost(); c.PrefillSeen > 0 || c.DecodeSeen > 0 {
			r.publish(message{kind: costMessage, endpoint: ep, cost: c})
		}
	}
}
