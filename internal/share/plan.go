package share

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

const (
	planEvery   = 25 * time.Millisecond // between looks at what the log knows
	askLimit    = 2 * time.Second       // then a stream is read without an incarnation
	askPause    = 200 * time.Millisecond
	askLater    = 5 * time.Second        // for streams that are read directly meanwhile
	joinPause   = 400 * time.Millisecond // for peers to say what they know of a new source; over once all have
	resumeTries = 3                      // then a stream is read from its beginning
	doubtLimit  = 10 * time.Second       // for a peer to be found that knows better
	partPause   = 30 * time.Millisecond
	smallBlocks = 16 // tokens: smaller pages need the reader's memory of them
)

// sourcePlan is what the plan knows of a source.
type sourcePlan struct {
	read   atomic.Bool // the stream is open, or is being opened
	asking bool        // an answer is awaited
	next   time.Time   // not asked before
	since  time.Time   // asking began
	shared time.Time   // it became shared
	parts  time.Time   // it was shared until then
	again  int         // times in a row that one life of the engine was shared anew
	doubt  time.Time   // since when the content is in doubt
	final  bool        // its engine cannot be told from the next: never shared
	answer *answer
}

// answer is what an engine's metrics page said.
type answer struct {
	inc   uint64
	block int
	err   error
}

// Set makes the sources fit the pool and the models. When it returns, nothing
// of endpoints that left is read any more.
func (x *Index) Set() {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.o.Pool.Snapshot() // under the lock: of two calls at a time the later one may come first
	x.pool = p
	if x.log == nil {
		x.events.Set(x.streams(nil))
		return
	}
	old := *x.byName.Load()
	byName, bySrc := map[string]*source{}, map[indexer.Source]*source{}
	byEndpoint := map[indexer.EndpointID][]*source{}
	for _, ep := range p.Endpoints {
		e := x.o.Source(ep)
		for _, at := range e.Streams {
			name, src := SourceName(ep.Address, at.Rank), indexer.Source{Endpoint: ep.ID, Rank: at.Rank}
			s := old[name]
			if s == nil || s.src != src || s.of != e.Model || s.at != at {
				s = &source{name: name, src: src, of: e.Model, at: at, x: x.o.Index}
				s.state.Store(uint32(events.Approximate))
			}
			s.ep = ep
			byName[name], bySrc[src] = s, s
			byEndpoint[ep.ID] = append(byEndpoint[ep.ID], s)
		}
	}
	x.leave(old, byName)
	now := time.Now()
	maps.DeleteFunc(x.past, func(name string, p pastLife) bool { return byName[name] == nil && now.Sub(p.at) >= pastMemory })
	x.byName.Store(&byName)
	x.bySrc.Store(&bySrc)
	x.byEndpoint.Store(&byEndpoint)
	x.reading = nil
	x.step()
}

// leave stops reading and sharing the sources that are not among those kept.
func (x *Index) leave(old, kept map[string]*source) {
	gone := map[string]bool{}
	for name, s := range old {
		if kept[name] != s {
			gone[name] = true
			s.plan.read.Store(false)
		}
	}
	if len(gone) == 0 {
		return
	}
	x.events.Set(x.streams(readNow(old)))
	if x.names != nil {
		x.names = slices.DeleteFunc(slices.Clone(x.names), func(n string) bool { return gone[n] })
		x.log.SetSources(x.names)
	}
	for name := range gone {
		old[name].become(modeAsking, 0)
	}
}

// readNow lists the sources whose streams are open.
func readNow(all map[string]*source) map[indexer.Source]bool {
	read := map[indexer.Source]bool{}
	for _, s := range all {
		if s.plan.read.Load() {
			read[s.src] = true
		}
	}
	return read
}

// Run looks at the sources whenever something happened to one of them.
func (x *Index) Run() {
	if x.log == nil {
		return
	}
	tick := time.NewTicker(planEvery)
	defer tick.Stop()
	for {
		select {
		case <-x.ctx.Done():
			x.waiting.Wait()
			return
		case <-x.wake:
		case <-tick.C:
		}
		x.mu.Lock()
		x.step()
		x.mu.Unlock()
	}
}

// step moves every source on, and makes the log and the streams fit.
func (x *Index) step() {
	if x.ctx.Err() != nil {
		return
	}
	now, ready := time.Now(), x.o.Ready()
	all, names, asking := *x.byName.Load(), make([]string, 0, len(x.names)), false
	for _, s := range all {
		if ready {
			x.advance(s, now)
		}
		mode, _ := s.isMode()
		asking = asking || mode == modeAsking
		if mode == modeShared || x.parting(s, now) {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	// The group takes a replica for settled that knows all of its sources, so
	// the first list is a complete one.
	if x.names == nil && !asking || x.names != nil && !slices.Equal(names, x.names) {
		x.names = names
		x.log.SetSources(names)
	}
	settled := x.o.Node.Phase() != cluster.Settling
	for _, s := range all {
		s.plan.read.Store(x.reads(s, now, settled))
	}
	if read := readNow(all); x.reading == nil || !maps.Equal(read, x.reading) {
		x.reading = read
		x.events.Set(x.streams(read))
	}
	x.look(now)
}

// parting reports whether a source that is not shared any more stays in the log
// for a moment, so that others hear that it is not read here for them.
func (x *Index) parting(s *source, now time.Time) bool {
	if !slices.Contains(x.names, s.name) {
		return false
	}
	if s.plan.parts.IsZero() {
		s.plan.parts = now
		x.log.Reading(s.name, false)
	}
	return now.Sub(s.plan.parts) < partPause
}

// reads decides whether this replica reads a stream.
func (x *Index) reads(s *source, now time.Time, settled bool) bool {
	switch mode, _ := s.isMode(); {
	case mode == modeDirect:
		return true
	case mode == modeAsking || cluster.Role(s.role.Load()) != cluster.RoleReader:
		return false
	case s.plan.read.Load():
		return true
	}
	// A stream that is opened goes on from what peers know.
	v, _ := x.log.Source(s.name)
	return settled && (v.Position.Next > 0 || v.Unclaimed || now.Sub(s.plan.shared) > joinPause)
}

// streams lists what is read; nil reads everything.
func (x *Index) streams(read map[indexer.Source]bool) []events.EndpointSource {
	var out []events.EndpointSource
	for _, ep := range x.pool.Endpoints {
		e := x.o.Source(ep)
		if read != nil {
			e.Streams = slices.DeleteFunc(slices.Clone(e.Streams), func(s events.Stream) bool {
				return !read[indexer.Source{Endpoint: e.ID, Rank: s.Rank}]
			})
		}
		out = append(out, e)
	}
	return out
}

// look notes what the log knows, for those who ask often.
func (x *Index) look(now time.Time) {
	byName := *x.byName.Load()
	for _, v := range x.log.Sources() {
		s := byName[v.Name]
		if s == nil {
			continue
		}
		s.mu.Lock()
		doubt, shared := s.head.doubt && v.Position.Lost > 0, s.mode == modeShared
		state := events.Exact
		switch {
		case !shared, v.Knowledge == cluster.Nothing, v.Reason != "", doubt:
			state = events.Approximate
		case v.Reader == "" && !s.plan.read.Load():
			state = events.Approximate // nobody is known to read it
		case v.Knowledge == cluster.CatchingUp:
			state = events.CatchingUp
		}
		s.state.Store(uint32(state))
		s.full.Store(shared && v.Position.Exact())
		s.behind.Store(v.Lag)
		if r := s.reader.Load(); r == nil || *r != v.Reader {
			s.reader.Store(&v.Reader)
		}
		if r := s.reason.Load(); r == nil || *r != v.Reason {
			s.reason.Store(&v.Reason)
		}
		inc := s.inc
		s.mu.Unlock()
		switch {
		case !doubt || !shared || !s.plan.read.Load():
			s.plan.doubt = time.Time{}
		case s.plan.doubt.IsZero():
			s.plan.doubt = now
		case now.Sub(s.plan.doubt) > doubtLimit:
			x.direct(s, inc, "batches of it were lost, and no peer has them")
		}
	}
}

// advance takes in an answer about the engine's incarnation and asks when one
// is due.
func (x *Index) advance(s *source, now time.Time) {
	p := &s.plan
	if a := p.answer; a != nil {
		p.answer = nil
		x.learned(s, a, now)
	}
	mode, inc := s.isMode()
	due := !p.asking && !now.Before(p.next)
	switch {
	case p.final:
		return
	case x.o.Conflict(s.ep) != "":
		x.direct(s, 0, "another replica has other files for its model")
		p.next = now.Add(askPause)
		return
	case s.at.Replay == "":
		p.final = true
		x.direct(s, 0, "it has no replay port")
		return
	case mode == modeAsking && p.since.IsZero():
		p.since, p.next, due = now, now, !p.asking
	case mode == modeAsking && now.Sub(p.since) > askLimit:
		x.direct(s, 0, "its metrics page cannot be read")
		p.next = now.Add(askLater)
		return
	case mode != modeAsking:
		p.since = time.Time{}
	}
	if due && (mode == modeAsking || mode == modeDirect && inc == 0 || s.verify.Swap(false)) {
		x.ask(s)
	}
}

// ask reads an engine's metrics page.
func (x *Index) ask(s *source) {
	s.plan.asking = true
	ep := s.ep
	x.waiting.Go(func() {
		ctx, cancel := context.WithTimeout(x.ctx, askLimit)
		defer cancel()
		page, err := x.o.Page(ctx, ep)
		a := &answer{block: page.BlockSize, err: err}
		if errors.Is(err, scrape.ErrNoGauges) {
			a.err = nil
		}
		if a.err == nil && !page.Started.IsZero() {
			a.inc = uint64(page.Started.UnixMilli())
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		s.plan.asking, s.plan.answer = false, a
		x.poke()
	})
}

// learned draws the consequences of an answer.
func (x *Index) learned(s *source, a *answer, now time.Time) {
	p := &s.plan
	mode, inc := s.isMode()
	past := x.past[s.name]
	past.inc = max(past.inc, s.newer.Load())
	p.next = now
	switch {
	case a.err != nil:
		p.next = now.Add(askPause)
		if mode == modeDirect {
			p.next = now.Add(askLater)
		}
		s.verify.Store(mode != modeAsking) // again
	case a.inc == inc && inc != 0:
		// the same engine; a stream that had to be read anew stays unshared
	case a.inc == 0, a.block > 0 && a.block < smallBlocks:
		p.final = true
		x.direct(s, 0, unshared(a))
	case a.inc < past.inc && now.Sub(past.at) < pastMemory:
		x.direct(s, a.inc, "the clock of its engine was set back, or peers have seen a later start")
	default:
		if p.again++; a.inc != past.inc {
			p.again = 0
		}
		s.cold.Store(p.again >= resumeTries)
		x.past[s.name] = pastLife{a.inc, now}
		x.stopReading(s)
		x.drop(s) // what the log knows is of an older life
		s.role.Store(uint32(cluster.RoleNone))
		s.become(modeShared, a.inc)
		p.shared, p.parts = now, time.Time{}
	}
}

// stopReading ends a stream; it goes on later from the log's position.
func (x *Index) stopReading(s *source) {
	if !s.plan.read.Swap(false) {
		return
	}
	x.reading = readNow(*x.byName.Load())
	x.events.Set(x.streams(x.reading))
}

func unshared(a *answer) string {
	if a.inc == 0 {
		return "its metrics do not say when its engine started"
	}
	return fmt.Sprintf("its blocks are %d tokens", a.block)
}

// direct lets this replica read a source by itself.
func (x *Index) direct(s *source, inc uint64, why string) {
	if mode, was := s.isMode(); mode == modeDirect {
		if was != inc && inc != 0 {
			s.mu.Lock()
			s.inc = inc
			s.mu.Unlock()
		}
		return
	}
	x.stopReading(s)
	x.o.Log.Info("event stream is not shared", "source", s.name, "reason", why)
	s.become(modeDirect, inc)
}

// drop takes a source out of the log.
func (x *Index) drop(s *source) {
	if i := slices.Index(x.names, s.name); i >= 0 {
		x.names = slices.Delete(slices.Clone(x.names), i, i+1)
		x.log.SetSources(x.names)
	}
}
