package monitor

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/loglines"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// Options configures a Monitor. Pool is required.
type Options struct {
	Pool *endpoint.Pool
	// Probe sends a short request to an endpoint; nil disables probes.
	Probe func(context.Context, *endpoint.Endpoint) Result
	// Rank is this replica's position among the replicas that may probe an endpoint, 0 for the
	// elected one. nil means always 0.
	Rank func(address string) int
	// Publish shares this replica's evidence on an endpoint; a nil value withdraws it. A nil func
	// shares nothing.
	Publish func(address string, value []byte) error
	// Refresh schedules an early read of an endpoint's metrics page; nil: pages are read on
	// schedule only.
	Refresh func(*endpoint.Endpoint)

	Health     health.Options
	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
	Watch      *watchdog.Loop        // watches the loop; nil: not watched
	Now        func() time.Time      // nil means the monotonic clock
}

func (o *Options) complete() {
	if o.Rank == nil {
		o.Rank = func(string) int { return 0 }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = monotime.Now
	}
}

const (
	tickEvery = 100 * time.Millisecond
	// tickShare bounds the share of one processor that steps take, up to tickMost between steps. A step
	// over 10,000 endpoints takes about 15 ms.
	tickShare = 10
	stepRound = tickEvery / tickShare
	tickMost  = 400 * time.Millisecond
	// calmEvery is the time between steps while the pool is calm: all endpoints are healthy, answer, and
	// have had no request for calmAfter. The next request or failed reading ends the calm at once.
	calmEvery = 500 * time.Millisecond
	calmAfter = 2 * time.Second
	// calmAnswer is the age of the last answered page from which its endpoint may be silent.
	calmAnswer   = 1500 * time.Millisecond
	refreshEvery = 250 * time.Millisecond // of pages of endpoints that are not healthy

	// progressEvery is how many endpoints are handled between two reports of progress to the watchdog.
	progressEvery = 500
)

// advance reports progress to the watchdog after each progressEvery endpoints.
func (m *Monitor) advance(done int) {
	if done%progressEvery == 0 {
		m.opts.Watch.Progress()
	}
}

// Monitor runs the health of one pool.
type Monitor struct {
	opts    Options
	metrics *metrics
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	wake    chan struct{}
	resting atomic.Bool // the pool is calm, and the loop waits for calmEvery

	mu        sync.Mutex
	set       *health.Set
	sights    map[string]*sight                // by address
	ordered   []*sight                         // the same, by ID; nil: to be rebuilt. Steps use it: iteration in random order misses caches
	past      map[string]past                  // of removed endpoints, by address
	reports   map[string]map[string]peerReport // last reports of other replicas, by address and origin
	stirred   time.Time                        // when the pool was last not calm
	lastStep  time.Time
	published bool           // a snapshot was published
	out       []word         // messages to other replicas, sent without the lock
	lines     loglines.Lines // written without the lock

	inboxMu sync.Mutex
	inbox   []inboxEntry // queued reports of replicas, page reads and probes, in order
}

// word is a message to the other replicas on one endpoint.
type word struct {
	address string
	value   []byte
}

// Open starts a monitor of the pool's current and future endpoints.
func Open(o Options) (*Monitor, error) {
	m, err := New(o)
	if err != nil {
		return nil, err
	}
	o.Pool.LoadTracker().Watch(func(*endpoint.Endpoint) { m.stir() })
	m.wg.Go(m.run)
	return m, nil
}

// New returns a monitor that advances only by Tick. It is for virtual time.
func New(o Options) (*Monitor, error) {
	o.complete()
	m := &Monitor{opts: o, wake: make(chan struct{}, 1), set: health.NewSet(o.Health), sights: map[string]*sight{}, past: map[string]past{}, reports: map[string]map[string]peerReport{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	var err error
	if m.metrics, err = newMetrics(o.Registerer, m); err != nil {
		m.cancel()
		return nil, err
	}
	o.Pool.Subscribe(m.apply)
	return m, nil
}

// Close stops all probes and goroutines and waits until they have ended.
func (m *Monitor) Close() {
	m.cancel()
	m.wg.Wait()
}

// Probe acquires and releases the monitor's lock.
func (m *Monitor) Probe() {
	m.mu.Lock()
	defer m.mu.Unlock()
}

func (m *Monitor) run() {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		stirred := false
		select {
		case <-m.ctx.Done():
			return
		case <-tick.C:
		case <-m.wake:
			stirred = true
		}
		m.resting.Store(false)
		m.opts.Watch.Working()
		begun := time.Now()
		m.Tick()
		tick.Reset(m.rest(stirred, time.Since(begun)))
		m.opts.Watch.Waiting()
	}
}

// rest returns the time until the next step, after one that took some time. stirred means that something
// has ended the calm.
func (m *Monitor) rest(stirred bool, took time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	every, now := min(max(tickEvery, tickShare*(took+stepRound-1).Truncate(stepRound)), tickMost), m.opts.Now()
	if stirred {
		m.stirred = now
	}
	if now.Sub(m.stirred) >= calmAfter {
		every = calmEvery
		m.resting.Store(true)
	}
	d := ticks.Until(every)
	m.set.Rest(d)
	return d
}

// stir ends a calm: something happened that the next step must not wait for. Most calls cost one load.
func (m *Monitor) stir() {
	if m.resting.Load() && m.resting.CompareAndSwap(true, false) {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
}

// apply handles a change of the pool.
func (m *Monitor) apply(c endpoint.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	now := m.opts.Now()
	for i, ep := range c.Removed {
		m.advance(i)
		if s := m.sights[ep.Address]; s != nil && s.ep.ID == ep.ID {
			m.remember(ep, m.set.Leave(int(ep.ID), now), now)
			delete(m.sights, ep.Address)
			m.ordered = nil
			m.queue(ep.Address, nil)
		}
	}
	for _, ep := range c.Restarted {
		if s := m.sights[ep.Address]; s != nil {
			ep.Tracker().ClearModels()
			*s = sight{ep: s.ep, base: s.base, answered: s.answered, probing: s.probing}
			m.set.Renew(int(ep.ID), now)
		}
	}
	for _, list := range [][]*endpoint.Endpoint{c.Added, c.Changed} {
		for i, ep := range list {
			m.advance(i)
			s, joins := m.sights[ep.Address], false
			if s == nil {
				s, joins = &sight{}, true
				m.sights[ep.Address] = s
				m.ordered = nil
			}
			s.ep, s.base = ep, ep.Base()
			m.set.Join(int(ep.ID), groupName(s.base, ep.Role), now)
			if p, ok := m.past[ep.Address]; ok && joins {
				delete(m.past, ep.Address)
				if p.name == ep.Name && now.Sub(p.at) < pastFor {
					m.set.Resume(int(ep.ID), p.Past, now)
				}
			}
			if joins {
				m.recall(s)
			}
			s.share(m, s.evidence(now), now) // publishes the starting values of its counts
		}
	}
}

// past is the remembered state of a removed endpoint by address and name. Without it, an engine
// that discovery removes after each crash would always start clean.
type past struct {
	health.Past
	name string
	at   time.Time
}

const (
	pastFor = 15 * time.Minute
	maxPast = 1024
)

func (m *Monitor) remember(ep *endpoint.Endpoint, p health.Past, now time.Time) {
	if p.Empty() {
		return
	}
	if len(m.past) >= maxPast {
		maps.DeleteFunc(m.past, func(_ string, p past) bool { return now.Sub(p.at) >= pastFor })
	}
	if len(m.past) < maxPast {
		m.past[ep.Address] = past{p, ep.Name, now}
	}
}

// regroup groups endpoints that can replace each other, by model and role. An endpoint whose model
// is unknown, for example because its engine has hung since this replica started, joins the others
// if they all serve the same model.
func (m *Monitor) regroup(now time.Time) {
	var only [1 << 3]string // by role
	var many [1 << 3]bool
	for _, s := range m.ordered {
		r, base := s.ep.Role&7, s.ep.Base()
		many[r] = many[r] || base != "" && only[r] != "" && only[r] != base
		only[r] = cmp.Or(base, only[r])
	}
	for _, s := range m.ordered {
		r, base := s.ep.Role&7, s.ep.Base()
		if base == "" && !many[r] {
			base = only[r]
		}
		if base != s.base {
			s.base = base
			m.set.Join(int(s.ep.ID), groupName(base, s.ep.Role), now)
		}
	}
}

// groupName returns the display name of a group: its model, and its role unless that is decode.
func groupName(base string, r endpoint.Role) string {
	return strings.TrimSpace(base + " " + roleNames[r])
}

var roleNames = map[endpoint.Role]string{
	endpoint.RoleDecode:                                              "",
	endpoint.RolePrefill:                                             "(prefill)",
	endpoint.RolePrefill | endpoint.RoleDecode:                       "(prefill, decode)",
	endpoint.RoleEncode:                                              "(encode)",
	endpoint.RoleEncode | endpoint.RolePrefill:                       "(encode, prefill)",
	endpoint.RoleEncode | endpoint.RolePrefill | endpoint.RoleDecode: "(encode, prefill, decode)",
}

// Read records a reading of an endpoint's metrics page. It does not wait for a running step, since
// a short CPU would otherwise delay the reading of hundreds of pages.
func (m *Monitor) Read(ep *endpoint.Endpoint, r scrape.Reading) {
	load := m.opts.Pool.LoadTracker().RankLoad(ep, r.At)
	busy := load.Prefill > 0 && ep.Cost().Wait(&load, r.At) > explained
	m.post(inboxEntry{own: func() {
		if s := m.sights[ep.Address]; s != nil {
			s.read(r, busy)
		}
	}})
	if !r.Answered {
		m.stir()
	}
}

// Tick collects the current evidence and advances all states.
func (m *Monitor) Tick() {
	words, lines := m.step()
	lines.Write(m.opts.Log)
	for i, w := range words {
		m.advance(i)
		if err := m.opts.Publish(w.address, w.value); err != nil {
			m.opts.Log.Warn("endpoint health not shared", "endpoint", w.address, "error", err)
		}
	}
}

// step is Tick without sending messages.
func (m *Monitor) step() ([]word, loglines.Lines) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	now := m.opts.Now()
	m.lastStep = now
	if len(m.ordered) != len(m.sights) {
		m.ordered = slices.SortedFunc(maps.Values(m.sights), func(a, b *sight) int { return cmp.Compare(a.ep.ID, b.ep.ID) })
	}
	m.regroup(now)
	for i, s := range m.ordered {
		m.advance(i)
		e := s.evidence(now)
		m.set.Receive("", int(s.ep.ID), e, now)
		m.followUp(s, &e, now)
		if !m.calm(s, &e, now) {
			m.stirred = now
		}
	}
	m.opts.Watch.Progress()
	changes := m.set.Step(now)
	m.opts.Watch.Progress()
	if len(changes) > 0 || len(m.out) > 0 {
		m.stirred = now
	}
	m.publish(changes)
	for _, c := range changes {
		m.log(c)
	}
	for _, s := range m.ordered {
		m.logAvoided(s, now)
	}
	out := m.out
	m.out = nil
	return out, m.lines.Take()
}

// calm reports whether nothing about an endpoint needs frequent steps.
func (m *Monitor) calm(s *sight, e *health.Evidence, now time.Time) bool {
	counts := s.counts != e.Counts()
	s.counts = e.Counts()
	silent := e.Answered > calmAnswer && e.Answered != health.Never
	id := int(s.ep.ID)
	return !counts && !silent && !s.probing && e.InFlight == 0 && e.Overdue == 0 && !e.Refused && !e.Slow &&
		m.set.State(id) == health.Healthy && !m.set.Suspected(id) && now.Sub(s.alarm) >= alarmFor
}

// followUp shares evidence and starts probes for an endpoint with problems.
func (m *Monitor) followUp(s *sight, e *health.Evidence, now time.Time) {
	id := int(s.ep.ID)
	sick := m.set.State(id) != health.Healthy
	s.mayShare(m, e, sick, now)
	if sick || now.Sub(s.alarm) < tickEvery*2 {
		s.ep.Tracker().WatchClosely(now)
	}
	doubted := m.set.Suspected(id)
	if !sick && !doubted && e.Overdue == 0 && !e.Refused {
		m.check(s, e, now)
		return
	}
	if m.opts.Refresh != nil && now.Sub(s.refreshed) >= refreshEvery {
		s.refreshed = now
		m.opts.Refresh(s.ep)
	}
	if m.opts.Probe != nil && (sick || doubted) && !s.probing && m.set.Probe(id, m.opts.Rank(s.ep.Address), now) {
		s.probing = true
		m.wg.Go(func() { m.probe(s, s.ep) })
	}
}

// check probes a healthy endpoint that receives no requests.
func (m *Monitor) check(s *sight, e *health.Evidence, now time.Time) {
	idle := m.opts.Health.Idle
	if m.opts.Probe == nil || idle <= 0 || s.probing || e.Moved < idle || e.InFlight > 0 || !m.idles(s.ep, now) {
		return
	}
	if m.set.Check(int(s.ep.ID), m.opts.Rank(s.ep.Address), e.Moved, now) {
		s.probing = true
		m.wg.Go(func() { m.probe(s, s.ep) })
	}
}

func (m *Monitor) publish(changes []health.Change) {
	busy := len(changes) > 0 || !m.published
	for _, s := range m.ordered {
		v := m.set.View(int(s.ep.ID))
		busy = busy || v.State != health.Healthy || s.ep.Share() != v.Share || v.Reached != m.opts.Pool.Health().View(int(s.ep.ID)).Reached
	}
	var was []health.GroupProblem
	if old := m.opts.Pool.Health(); old != nil {
		was = old.GroupProblems
	}
	troubles := m.set.GroupProblems()
	if busy || !slices.Equal(troubles, was) {
		m.published = true
		m.opts.Pool.SetHealth(m.set.Snapshot())
	}
	m.logGroupProblems(was, troubles)
}

// logGroupProblems logs the groups that began or ceased to have mostly unhealthy endpoints.
func (m *Monitor) logGroupProblems(was, is []health.GroupProblem) {
	in := func(list []health.GroupProblem, group string) bool {
		return slices.ContainsFunc(list, func(t health.GroupProblem) bool { return t.Group == group })
	}
	for _, t := range is {
		if !in(was, t.Group) {
			m.lines.Warn("most endpoints are unhealthy", "group", t.Group, "endpoints", t.Endpoints, "away", t.Unhealthy, "evidence_ignored", t.Ignored, "failing", t.Failing)
		}
	}
	for _, t := range was {
		if !in(is, t.Group) {
			m.lines.Info("most endpoints are healthy again", "group", t.Group)
		}
	}
}

func (m *Monitor) log(c health.Change) {
	m.metrics.changed(c)
	address := strconv.Itoa(c.ID)
	if ep := m.opts.Pool.Snapshot().ByID(c.ID); ep != nil {
		address = ep.Address
	}
	level := slog.LevelInfo
	if c.To.State == health.Out && c.From != health.Probing || c.To.State == health.Suspect {
		level = slog.LevelWarn
	}
	m.lines.Add(level, "endpoint health changed", "endpoint", address,
		"from", c.From.String(), "to", c.To.State.String(), "cause", c.To.Cause.String(),
		"evidence", c.To.Evidence(), "back_by", c.To.Remedy(), "overruled", c.To.Overruled)
}

// logAvoided logs when an endpoint starts and stops failing single models, clients or kinds of request.
func (m *Monitor) logAvoided(s *sight, now time.Time) {
	n := s.ep.Tracker().AvoidedCount()
	switch {
	case n > s.avoided:
		m.lines.Warn("endpoint fails some models, clients or kinds of request, which go to other endpoints", "endpoint", s.ep.Address, "models", s.ep.AvoidedModels(nil, now), "count", n)
	case n < s.avoided:
		m.lines.Info("an endpoint no longer fails single models, clients or kinds of request", "endpoint", s.ep.Address, "left", n)
	}
	s.avoided = n
}

// Merge queues another replica's evidence on an endpoint. It implements cluster.GaugeSink and
// returns quickly, because it would delay the cluster's heartbeats.
func (m *Monitor) Merge(origin string, _ uint64, address string, value []byte) error {
	if value == nil { // that replica removed the endpoint; its earlier evidence only ages
		m.post(inboxEntry{origin: origin, address: address, gone: true})
		return nil
	}
	e, found, suspected, err := readEvidence(value)
	if err != nil {
		return err
	}
	m.post(inboxEntry{origin: origin, address: address, peerReport: peerReport{e, found, suspected, m.opts.Now()}})
	m.stir()
	return nil
}

// Drop removes the evidence of a replica that has left. It implements cluster.GaugeSink.
func (m *Monitor) Drop(origin string) { m.post(inboxEntry{origin: origin, gone: true}) }

// inboxEntry is a queued report of another replica, a page read or a probe result. The next step
// handles it.
type inboxEntry struct {
	own             func() // handler for this replica's own observation; the other fields are then empty
	origin, address string // address "": all endpoints
	peerReport
	gone bool
}

// maxInbox bounds the queue.
const maxInbox = 1 << 14

// post queues a letter for the next step. A full queue is processed immediately.
func (m *Monitor) post(l inboxEntry) {
	m.inboxMu.Lock()
	m.inbox = append(m.inbox, l)
	full := len(m.inbox) >= maxInbox
	m.inboxMu.Unlock()
	if full {
		m.mu.Lock()
		m.open()
		m.mu.Unlock()
	}
}

// open processes the queue in order. The caller holds m.mu.
func (m *Monitor) open() {
	m.inboxMu.Lock()
	letters := m.inbox
	m.inbox = nil
	m.inboxMu.Unlock()
	for i := range letters {
		switch l := &letters[i]; {
		case l.own != nil:
			l.own()
		case l.address == "":
			m.drop(l.origin)
		case l.gone:
			m.removeReport(l.address, l.origin)
		default:
			m.take(l)
		}
	}
}

// take stores a replica's report on an endpoint and applies it if the endpoint exists.
func (m *Monitor) take(l *inboxEntry) {
	if m.reports[l.address] == nil {
		m.reports[l.address] = map[string]peerReport{}
	}
	m.reports[l.address][l.origin] = l.peerReport
	if s := m.sights[l.address]; s != nil {
		m.hear(s, l.origin, l.peerReport)
	}
}

// peerReport is another replica's report on an endpoint. The cluster bounds the number of reports per
// replica.
type peerReport struct {
	health.Evidence
	found     []health.ModelAvoidance
	suspected []health.Suspicion
	at        time.Time
}

func (m *Monitor) hear(s *sight, origin string, w peerReport) {
	s.receive(origin, &w.Evidence, w.at)
	m.set.Receive(origin, int(s.ep.ID), w.Evidence, w.at)
	s.ep.Tracker().SetFailing(w.Failing)
	s.ep.Tracker().ReceiveAvoidances(origin, w.found, w.at)
	s.ep.Tracker().ReceiveSuspicions(origin, w.suspected, w.at)
}

func (m *Monitor) removeReport(address, origin string) {
	if delete(m.reports[address], origin); len(m.reports[address]) == 0 {
		delete(m.reports, address)
	}
}

// recall applies reports that arrived before the endpoint was added.
func (m *Monitor) recall(s *sight) {
	said := m.reports[s.ep.Address]
	for _, origin := range slices.Sorted(maps.Keys(said)) {
		m.hear(s, origin, said[origin])
	}
}

// drop removes all reports of a replica that has left.
func (m *Monitor) drop(origin string) {
	m.set.Drop(origin)
	for address := range m.reports {
		m.removeReport(address, origin)
	}
	for _, s := range m.sights {
		delete(s.words, origin)
	}
}
