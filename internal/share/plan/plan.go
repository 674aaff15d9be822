package plan

import (
	"time"
)

// Periods of a plan.
const (
	askLimit    = 2 * time.Second // then the engine's page counts as unreadable
	askPause    = 200 * time.Millisecond
	askLater    = 5 * time.Second        // while the stream is being read
	joinPause   = 400 * time.Millisecond // for peers to claim a new source; ends early once all have
	partPause   = 30 * time.Millisecond  // for peers to see that this replica does not read a source
	stallLimit  = 2 * time.Second        // a working engine writes to its log within this time
	coverPause  = 800 * time.Millisecond // time for a stalled log's reader to recover before a standby reads too
	coverFor    = 10 * time.Second       // minimum time that the standby then reads
	stallMost   = time.Minute            // longest time until the next suspicion
	ownPause    = 5 * time.Second        // how long this replica reads content found wrong, even if another is assigned
	sameLife    = 1000                   // incarnations that one engine process may use
	unnamed     = 1                      // incarnation of an engine whose start was not observed
	smallBlocks = 16                     // tokens: a reader merges smaller pages using its memory of earlier ones
)

// Never is the deadline of a plan that waits for input.
const Never = time.Duration(1<<63 - 1)

// Mode is which component writes the content of a source.
type Mode uint8

// Modes.
const (
	Asking Mode = iota // none: the engine's incarnation is being determined
	Direct             // this replica's reader; nothing is shared
	Shared             // the log, also for events read here
)

var modeNames = [...]string{"asking", "direct", "shared"}

// String returns the mode for metrics and status.
func (m Mode) String() string { return modeNames[m] }

// Reasons for not sharing a source.
const (
	whyConflict = "another replica has different files for its model"
	whyReplay   = "it has no replay port"
)

// Answer is the content of an engine's metrics page.
type Answer struct {
	Started uint64 // Unix ms; 0: unknown
	Block   int    // tokens; 0: unknown
	Failed  bool   // the page could not be read
}

// Log is the group log's state of the source.
type Log struct {
	Inc, Next        uint64
	Unclaimed        bool // all other members have reported that they do not have it
	Reader           bool // this replica is assigned to read the stream
	Standby          bool // this replica is the standby
	HasStayingReader bool // another member reads it and is not leaving
}

// Facts are the conditions at the time of an Advance.
type Facts struct {
	Wall     uint64 // Unix ms
	Ready    bool   // models were loaded
	Settled  bool   // the replica has found its group
	Conflict bool   // another replica reads the source's tokens differently
	Log      Log
	// Stalled is how long the log has not moved while the engine worked; 0 for an idle engine.
	Stalled time.Duration
}

// Kind is the type of an Action.
type Kind uint8

// Kinds of action.
const (
	Ask    Kind = iota // read the engine's metrics page and pass it to Plan.Answer
	Become             // empty the content and switch to Mode and Inc
	Name               // switch to Inc and keep the content
	Open               // read the stream
	Shut               // stop reading it
	Renew              // reconnect the stream
	List               // add the source to the group's log
	Unlist             // remove the source from the log
)

// Action is a task for the caller, to be executed in order.
type Action struct {
	Kind   Kind
	Mode   Mode
	Inc    uint64
	Reason string // for Become Direct, and for Renew
	Cold   bool   // for Open: from the stream's beginning instead of the content's position
}

// Plan is the state of one source. Its methods are inputs, except Mode, Inc and Reason.
type Plan struct {
	replay bool
	mode   Mode
	inc    uint64
	why    string
	out    []Action

	asking bool          // waiting for an answer
	askAt  time.Duration // earliest next request
	since  time.Duration // start of asking; negative: not started
	verify bool          // the page must be read again
	final  bool          // the reading mode is final
	begun  bool          // restarted was called since the last answer
	wiped  bool          // another engine, or its history is gone

	reads  bool
	cold   bool
	warm   bool // it was opened at the content's position
	paged  bool // pages are merged using the reader's memory of earlier ones
	listed bool
	parts  time.Duration // listed until then; 0: it is not leaving
	shared time.Duration // since when

	own            time.Duration // read here until then, even if another replica is assigned
	suspect        time.Duration // shorter stalls raise no suspicion
	suspectedSince time.Duration // since when the log is suspected; 0: it is not
}

// New returns the plan of a stream with or without a replay port.
func New(replay bool) *Plan {
	return &Plan{replay: replay, since: -1, suspect: stallLimit}
}

// NewStandalone returns the plan of a stream that is read but not shared.
func NewStandalone() *Plan {
	return &Plan{mode: Direct, final: true, since: -1, suspect: stallLimit}
}

// Mode returns which component writes the content.
func (p *Plan) Mode() Mode { return p.mode }

// Inc returns the incarnation under which this replica reads; 0: none yet.
func (p *Plan) Inc() uint64 { return p.inc }

// Reason returns why a source is Direct.
func (p *Plan) Reason() string { return p.why }

// Reads reports whether the stream is open or being opened.
func (p *Plan) Reads() bool { return p.reads }

// Listed reports whether the source is in the group's log.
func (p *Plan) Listed() bool { return p.listed }

// Suspect returns since when the log is suspected to be behind its engine; 0: it is not.
func (p *Plan) Suspect() time.Duration { return p.suspectedSince }

// Connected reports that the stream connected. The engine may be another one.
func (p *Plan) Connected() { p.verify = true }

// Paged reports that the engine's pages are small. A new reader then cannot merge the next page
// with earlier ones. So it reads everything that the engine can replay, and the reader changes only
// when one is gone.
func (p *Plan) Paged() {
	if p.paged {
		return
	}
	p.paged = true
	if p.reads && p.warm && p.mode == Shared {
		p.shut()
	}
}

// Restarted reports that the stream's engine was replaced (wiped), or that its replay ring no
// longer contains the batch after the content's position. Nothing more is accepted from the stream.
// It is reopened once the page was read, possibly immediately.
func (p *Plan) Restarted(wiped bool) {
	p.begun, p.wiped, p.verify = true, p.wiped || wiped, true
	p.askAt = 0
	if p.mode == Shared {
		p.shut()
	}
}

// Superseded reports that the log has a later incarnation than this replica's reader.
func (p *Plan) Superseded(inc uint64) {
	if p.mode == Shared && inc > p.inc {
		p.shut() // and continues from the log's position
		p.inc, p.verify = inc, true
		p.act(Action{Kind: Name, Inc: inc})
	}
}

// Invalidated reports that the content was found wrong. It is read again from the stream's
// beginning, under a higher incarnation, which the other members follow.
func (p *Plan) Invalidated(now time.Duration, log Log) {
	if p.mode == Shared {
		p.anew(now, max(p.inc, log.Inc)+1, true)
		p.own = now + ownPause
	}
}

// anew drops the content and switches to another incarnation, read from the stream's beginning if
// cold is set.
func (p *Plan) anew(now time.Duration, inc uint64, cold bool) {
	p.shut()
	if p.listed {
		p.listed = false
		p.act(Action{Kind: Unlist}) // the log's state belongs to an older incarnation
	}
	p.mode, p.inc, p.why, p.cold, p.shared, p.parts = Shared, inc, "", cold, now, 0
	p.act(Action{Kind: Become, Mode: Shared, Inc: inc})
}

func (p *Plan) direct(why string) {
	if p.mode == Direct {
		p.why = why
		return
	}
	p.shut()
	p.mode, p.inc, p.why, p.cold = Direct, 0, why, false
	p.act(Action{Kind: Become, Mode: Direct, Reason: why})
}

func (p *Plan) shut() {
	if p.reads {
		p.reads = false
		p.act(Action{Kind: Shut})
	}
}

func (p *Plan) act(a Action) { p.out = append(p.out, a) }
