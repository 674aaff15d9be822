package plan

import (
	"time"
)

// Advance returns the actions due at now, and when to call it again if nothing happens before. The
// result is valid until the next call.
func (p *Plan) Advance(now time.Duration, f Facts) (do []Action, next time.Duration) {
	if f.Ready {
		p.identify(now, f)
	}
	p.watch(now, f)
	if p.list(now) {
		f.Log = Log{} // it belongs to another listing
	}
	p.read(now, f)
	do, p.out = p.out, nil
	return do, p.due(now, f)
}

// identify determines whether the source can be shared, and asks the engine when due.
func (p *Plan) identify(now time.Duration, f Facts) {
	switch {
	case p.final:
		return
	case f.Conflict:
		p.direct(whyConflict)
		p.askAt = now + askPause
		return
	case !p.replay:
		p.final = true
		p.direct(whyReplay)
		return
	case p.mode == Asking && p.since < 0:
		p.since = now
	case p.mode == Asking && now-p.since >= askLimit:
		// The stream can still be read; it distinguishes incarnations of its engine.
		p.anew(now, 0, false)
		p.askAt = now + askLater
		p.verify = true
	}
	wanted := p.mode == Asking || p.mode == Direct || p.verify
	if wanted && !p.asking && now >= p.askAt {
		p.asking, p.verify = true, false
		p.act(Action{Kind: Ask})
	}
}

// Answer handles the engine's metrics page.
func (p *Plan) Answer(now time.Duration, a Answer, f Facts) {
	p.asking, p.askAt = false, now
	if a.Failed {
		if p.askAt = now + askPause; p.mode != Asking {
			p.askAt, p.verify = now+askLater, true
		}
		if !p.begun {
			return
		}
		p.askAt = now + askPause
		return
	}
	if a.Block > 0 && a.Block < smallBlocks {
		p.Paged()
	}
	p.learn(now, a.Started, f)
	p.begun, p.wiped = false, false
}

// learn applies the engine's start time, or 0 if unknown.
func (p *Plan) learn(now time.Duration, started uint64, f Facts) {
	life := max(p.inc, f.Log.Inc)
	switch {
	case p.mode != Shared:
		p.anew(now, started, false)
	case started >= life+sameLife:
		p.anew(now, started, false)
	case p.begun && p.wiped && started == 0:
		p.anew(now, max(f.Wall, life+1), false)
	case p.begun && p.wiped:
		p.anew(now, life+1, false)
	case p.begun:
		p.cold = true // the ring's content follows the known content after a gap
	}
}

// list keeps the source in the log while it is shared, and slightly longer, so that peers see that
// this replica does not read it any more.
func (p *Plan) list(now time.Duration) (begins bool) {
	switch {
	case p.mode == Shared && !p.listed:
		p.listed, p.parts = true, 0
		p.act(Action{Kind: List})
		return true
	case p.mode == Shared || !p.listed:
	case p.parts == 0:
		p.parts = now + partPause
	case now >= p.parts:
		p.listed, p.parts = false, 0
		p.act(Action{Kind: Unlist})
	}
	return false
}

// read decides whether this replica reads the stream.
func (p *Plan) read(now time.Duration, f Facts) {
	wanted := p.wanted(now, f)
	switch {
	case !wanted:
		p.shut()
	case !p.reads:
		p.open(f)
	}
}

func (p *Plan) wanted(now time.Duration, f Facts) bool {
	switch p.mode {
	case Asking:
		return false
	case Direct:
		return true
	}
	if p.begun {
		return false // the incarnation must be known first
	}
	if f.Log.Standby && p.suspectedSince > 0 && now-p.suspectedSince >= coverPause {
		p.own = max(p.own, now+coverFor)
	}
	if !f.Log.Reader && now >= p.own {
		return false
	}
	if p.paged && !p.reads && f.Log.HasStayingReader && now >= p.own {
		return false
	}
	// A stream that is opened continues from the peers' position.
	return p.reads || f.Settled && (f.Log.Next > 0 || f.Log.Unclaimed || now-p.shared >= joinPause)
}

// open reads the stream under the incarnation known to the group. An engine whose start no member
// has observed gets the lowest incarnation, so that any member with better information prevails.
func (p *Plan) open(f Facts) {
	if p.mode == Shared {
		inc := max(p.inc, f.Log.Inc)
		if inc == 0 {
			inc = unnamed
		}
		if inc != p.inc {
			p.inc = inc
			p.act(Action{Kind: Name, Inc: inc})
		}
	}
	cold := p.cold || p.paged
	p.reads, p.warm, p.cold = true, !cold, false
	p.act(Action{Kind: Open, Cold: cold})
}

// watch suspects a log that does not move while its engine works. A reader then reconnects its
// stream, because a silently dropped connection looks alive. Each suspicion without effect delays
// the next one.
func (p *Plan) watch(now time.Duration, f Facts) {
	switch {
	case f.Stalled == 0:
		p.suspectedSince, p.suspect = 0, stallLimit
	case f.Stalled >= p.suspect && p.mode != Asking:
		p.suspect = min(2*max(f.Stalled, stallLimit), f.Stalled+stallMost)
		if p.suspectedSince == 0 {
			p.suspectedSince = max(now, 1)
		}
		if p.reads {
			p.act(Action{Kind: Renew, Reason: "no events while its engine works"})
		}
	}
}

// due returns when Advance has work without further input.
func (p *Plan) due(now time.Duration, f Facts) time.Duration {
	next := Never
	at := func(t time.Duration) {
		if t > now {
			next = min(next, t)
		}
	}
	if p.parts > 0 {
		at(p.parts)
	}
	if f.Ready && !p.final && !p.asking && (p.mode != Shared || p.verify) {
		at(p.askAt)
	}
	if p.mode == Asking && p.since >= 0 {
		at(p.since + askLimit)
	}
	if p.mode == Shared && !p.reads {
		at(p.shared + joinPause)
	}
	at(p.own)
	if f.Stalled > 0 {
		at(now + p.suspect - f.Stalled)
		if p.suspectedSince > 0 {
			at(p.suspectedSince + coverPause)
		}
	}
	return next
}
