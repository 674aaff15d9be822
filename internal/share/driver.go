package share

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// Polling intervals of the driver for state that does not wake it: the log's knowledge, and the
// engines' gauges.
const (
	lookSoon  = 20 * time.Millisecond  // while work is in progress
	lookLater = 250 * time.Millisecond // while nothing is missing
	lookIdle  = 500 * time.Millisecond // the same without a group and while no engine works
	askWait   = 2 * time.Second        // for an engine's metrics page
)

// Set updates the sources for the current pool and models. After it returns, no stream of a removed
// endpoint is read.
func (x *Index) Set() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.set()
}

// set is Set. The caller holds mu.
func (x *Index) set() {
	p := x.o.Pool.Snapshot() // under the lock, so that concurrent calls cannot apply snapshots out of order
	x.pool = p
	old := *x.byName.Load()
	byName, bySrc := map[string]*source{}, map[block.Source]*source{}
	byEndpoint := map[block.EndpointID][]*source{}
	for _, ep := range followed(p) {
		e := x.o.Source(ep)
		for _, at := range e.Streams {
			name, src := SourceName(ep.Address, at.Rank), block.Source{Endpoint: ep.ID, Rank: at.Rank}
			s := old[name]
			if s == nil || s.src != src || s.of != e.Model || s.at != at {
				s = x.newSource(name, src, at, e.Model)
			}
			s.ep = ep
			byName[name], bySrc[src] = s, s
			byEndpoint[ep.ID] = append(byEndpoint[ep.ID], s)
		}
	}
	x.leave(old, byName)
	x.byName.Store(&byName)
	x.order, x.relist = inOrder(byName), true
	x.bySrc.Store(&bySrc)
	x.byEndpoint.Store(&byEndpoint)
	x.reading = nil
	x.step()
}

func inOrder(all map[string]*source) []*source {
	return slices.SortedFunc(maps.Values(all), func(a, b *source) int { return strings.Compare(a.name, b.name) })
}

// followed returns the endpoints whose streams are followed: listed endpoints, and removed ones
// that may return.
func followed(p *endpoint.Snapshot) []*endpoint.Endpoint {
	return append(slices.Clip(p.Endpoints), p.Absent...)
}

// EngineRestarted reports that the engines of endpoints have restarted. Their content is dropped
// once their metrics pages confirm it.
func (x *Index) EngineRestarted(eps []*endpoint.Endpoint) {
	for _, ep := range eps {
		for _, s := range (*x.byEndpoint.Load())[ep.ID] {
			s.in.note(func(r *reports) { r.connected = true })
		}
	}
	if len(eps) > 0 {
		x.poke()
	}
}

func (x *Index) newSource(name string, src block.Source, at events.Stream, of *events.Model) *source {
	s := &source{name: name + x.suffix, src: src, of: of, at: at, x: x.o.Index, plan: plan.New(at.Replay != "")}
	if x.log == nil {
		s.plan = plan.NewStandalone()
		s.mode = plan.Direct
		s.shown.mode.Store(uint32(plan.Direct))
	}
	s.shown.state.Store(uint32(knowledge.Approximate))
	return s
}

// leave stops reading and sharing the sources that are not in kept.
func (x *Index) leave(old, kept map[string]*source) {
	gone := map[string]bool{}
	for name, s := range old {
		if kept[name] != s {
			gone[s.name] = true
			s.shown.reads.Store(false)
		}
	}
	if len(gone) == 0 {
		return
	}
	x.setStreams(old)
	if x.log == nil {
		return
	}
	if x.names != nil {
		x.names = slices.DeleteFunc(slices.Clone(x.names), func(n string) bool { return gone[n] })
		x.log.SetSources(x.names)
	}
	for name, s := range old {
		if kept[name] != s {
			s.become(plan.Asking, 0)
		}
	}
}

// Rekey drops all content, calls change to replace the hasher's seed, and starts over under source
// names that identify the new seed. Members with another seed share nothing with this one. No
// prefix matches until the index is filled again.
func (x *Index) Rekey(change func() (mark uint64)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.leave(*x.byName.Load(), nil)
	x.byName.Store(&map[string]*source{})
	x.bySrc.Store(&map[block.Source]*source{})
	x.byEndpoint.Store(&map[block.EndpointID][]*source{})
	x.order = nil
	x.suffix = suffix(change())
	x.set()
}

// setStreams opens and closes event streams so that exactly the streams to read are open.
func (x *Index) setStreams(all map[string]*source) {
	read := map[block.Source]bool{}
	for _, s := range all {
		if s.shown.reads.Load() {
			read[s.src] = true
		}
	}
	if x.reading != nil && maps.Equal(read, x.reading) {
		return
	}
	x.reading = read
	var out []events.EndpointSource
	for _, ep := range followed(x.pool) {
		e := x.o.Source(ep)
		e.Streams = slices.DeleteFunc(slices.Clone(e.Streams), func(s events.Stream) bool {
			return !read[block.Source{Endpoint: e.ID, Rank: s.Rank}]
		})
		out = append(out, e)
	}
	x.events.Set(out)
}

// Run processes source events until the context of OpenIndex ends.
func (x *Index) Run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-x.ctx.Done():
			x.waiting.Wait()
			return
		case <-x.wake:
		case <-timer.C:
		}
		x.o.Watch.Working()
		x.mu.Lock()
		next := x.step()
		x.mu.Unlock()
		x.o.Watch.Waiting()
		timer.Reset(next)
	}
}

// change collects the plans' actions over all sources.
type change struct {
	shut, open            bool
	unlist, named, begins []*source
	renew, ask            []*source
	become                map[*source]plan.Action
	name                  map[*source]uint64
}

// step advances every plan and updates the log and the streams. It returns when it is due again.
func (x *Index) step() time.Duration {
	if x.ctx.Err() != nil {
		return lookLater
	}
	now, at := time.Since(x.began), monotime.Now()
	x.look()
	f := plan.Facts{Wall: uint64(time.Now().UnixMilli()), Ready: x.o.Ready(), Settled: x.log == nil || x.o.Node.Phase() != cluster.Settling}
	c := change{become: map[*source]plan.Action{}, name: map[*source]uint64{}}
	every, asking := lookIdle, false
	if x.log != nil {
		every = lookLater
	}
	for _, s := range x.order {
		w := workOf(x.o.Pool.LoadTracker(), s.ep, at)
		if w.runs {
			every = lookLater
		}
		s.stall.look(at, x.at(s), w)
	}
	due, acts := now+ticks.Until(every), false
	for _, s := range x.order {
		f := x.facts(f, s)
		if s.report(now, f) && x.o.EngineRestarted != nil && s.ep.Gauges().Started.IsZero() {
			ep := s.ep
			x.waiting.Go(func() { x.o.EngineRestarted(ep) }) // it changes the pool, which calls Set
		}
		do, next := s.plan.Advance(now, f)
		due = min(due, next)
		asking = asking || s.plan.Mode() == plan.Asking
		c.add(s, do)
		acts = acts || len(do) > 0
	}
	x.perform(&c, *x.byName.Load(), asking)
	x.o.Index.Reclaim()
	if acts {
		x.look()
	}
	if x.show() {
		due = min(due, now+lookSoon)
	}
	return max(due-time.Since(x.began), time.Millisecond)
}

// look updates each source's view of the log. The cost grows with sources times members, so a step
// looks once, and again only if the first look caused changes.
func (x *Index) look() {
	if x.log == nil {
		return
	}
	x.common.Store(x.log.Common())
	x.views = x.log.Sources(x.views[:0])
	i := 0
	for _, s := range x.order {
		for i < len(x.views) && x.views[i].Name < s.name {
			i++
		}
		if s.view = nil; i < len(x.views) && x.views[i].Name == s.name {
			s.view = &x.views[i]
		}
	}
}

// at returns the position of a source, from the log or from this replica's own reading.
func (x *Index) at(s *source) cluster.Position {
	v, _ := s.logged()
	at := v.Position
	if x.log == nil || s.plan.Mode() == plan.Direct {
		at.Next = x.events.LastMessage(s.src)
	}
	return at
}

func (x *Index) facts(f plan.Facts, s *source) plan.Facts {
	v, _ := s.logged()
	if x.log != nil && s.plan.Mode() != plan.Direct {
		role := cluster.Role(s.role.Load())
		f.Log = plan.Log{
			Inc: v.Position.Inc, Next: v.Position.Next, Unclaimed: v.Unclaimed,
			Reader: role == cluster.RoleReader, Standby: role == cluster.RoleStandby, HasStayingReader: v.HasStayingReader,
		}
	}
	f.Conflict = f.Ready && x.log != nil && x.o.Conflict(s.ep) != ""
	f.Stalled = stalled((*x.byEndpoint.Load())[s.src.Endpoint])
	return f
}

func (c *change) add(s *source, do []plan.Action) {
	for _, a := range do {
		switch a.Kind {
		case plan.Ask:
			c.ask = append(c.ask, s)
		case plan.Become:
			c.become[s] = a
		case plan.Name:
			c.name[s] = a.Inc
		case plan.Open:
			s.cold.Store(a.Cold)
			c.open = true
			c.begins = append(c.begins, s)
		case plan.Shut:
			s.shown.reads.Store(false)
			c.shut = true
		case plan.Renew:
			c.renew = append(c.renew, s)
		case plan.Unlist:
			c.unlist = append(c.unlist, s)
		case plan.List:
			c.named = append(c.named, s)
		}
	}
}

// perform executes the plans' actions in the order of plan.Kind: streams are closed before their
// content is dropped, and opened once they are in the log.
func (x *Index) perform(c *change, all map[string]*source, asking bool) {
	if c.shut {
		x.setStreams(all)
	}
	if len(c.unlist) > 0 && x.names != nil {
		gone := map[string]bool{}
		for _, s := range c.unlist {
			gone[s.name] = true
		}
		x.names = slices.DeleteFunc(slices.Clone(x.names), func(n string) bool { return gone[n] })
		x.log.SetSources(x.names)
	}
	for s, a := range c.become {
		s.role.Store(uint32(cluster.RoleNone))
		s.held.Store(false)
		if a.Mode == plan.Direct && x.log != nil {
			x.log.Reading(s.name, false)
			x.o.Log.Info("event stream is not shared", "source", s.name, "reason", a.Reason)
		}
		if x.log != nil || a.Mode != plan.Direct {
			s.become(a.Mode, a.Inc)
		}
	}
	for s, inc := range c.name {
		s.rename(inc)
	}
	x.relist = x.relist || len(c.unlist)+len(c.named) > 0
	x.list(asking)
	if c.open {
		for _, s := range c.begins {
			s.held.Store(false)
			s.shown.reads.Store(true)
		}
		x.setStreams(all)
	} else if x.reading == nil {
		x.setStreams(all)
	}
	for _, s := range c.renew {
		x.o.Log.Warn("event stream is silent while its engine works; reconnecting", "source", s.name)
		x.events.Renew(s.src)
	}
	for _, s := range c.ask {
		x.ask(s)
	}
}

// list sets the log's sources. The group considers a replica settled once it has all of its
// sources, so the first list must be complete.
func (x *Index) list(asking bool) {
	if x.log == nil || !x.relist || x.names == nil && (asking || !x.o.Seeded()) {
		return
	}
	x.relist = false
	names, zones := []string{}, map[string]string(nil)
	for _, s := range x.order {
		if s.plan.Listed() {
			names = append(names, s.name)
			if zone := s.ep.Zone(); zone != "" {
				if zones == nil {
					zones = map[string]string{}
				}
				zones[s.name] = zone
			}
		}
	}
	if !maps.Equal(zones, x.zones) {
		x.zones = zones
		x.log.SetZones(zones)
	}
	if x.names == nil || !slices.Equal(names, x.names) {
		x.names = names
		x.log.SetSources(names)
	}
}

// ask reads an engine's metrics page.
func (x *Index) ask(s *source) {
	ep := s.ep
	x.waiting.Go(func() {
		ctx, cancel := context.WithTimeout(x.ctx, askWait)
		defer cancel()
		page, err := x.o.Page(ctx, ep)
		a := answer(page, err)
		s.in.note(func(r *reports) { r.answer = &a })
		x.poke()
	})
}

func answer(page scrape.Page, err error) plan.Answer {
	if err != nil && !errors.Is(err, scrape.ErrNoGauges) {
		return plan.Answer{Failed: true}
	}
	a := plan.Answer{Block: page.BlockSize}
	if !page.Started.IsZero() {
		a.Started = uint64(page.Started.UnixMilli())
	}
	return a
}
