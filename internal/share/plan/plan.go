package plan

import (
	"time"
)

// Periods of a plan.
const (
	askLimit    = 2 * time.Second // then the engine's page counts as unreadable
	askPause    = 200 * time.Millisecond
	askLater    = 5 * time.Second        // while the stream is read meanwhile
	joinPause   = 400 * time.Millisecond // for peers to say what they know of a new source; over once all have
	partPause   = 30 * time.Millisecond  // for peers to hear that a source is not read here for them
	stallLimit  = 2 * time.Second        // an engine that works writes to its log within that time
	coverPause  = 800 * time.Millisecond // for the reader of a stalled log to mend it before a standby reads too
	coverFor    = 10 * time.Second       // which then goes on for so long at least
	stallMost   = time.Minute            // longest time to the next suspicion
	ownPause    = 5 * time.Second        // content that was found wrong is read here, whoever reads it usually
	sameLife    = 1000                   // incarnations that one life of an engine may use up
	unnamed     = 1                      // incarnation of an engine that nobody has seen starting
	smallBlocks = 16                     // tokens: smaller pages are merged by what their reader remembers
)

// Never is the deadline of a plan that waits for an input.
const Never = time.Duration(1<<63 - 1)

// Mode is who writes the content of a source.
type Mode uint8

// Modes.
const (
	Asking Mode = iota // nobody: the engine's incarnation is being asked for
	Direct             // this replica's reader; nothing is shared
	Shared             // the log: what is read here goes through it
)

var modeNames = [...]string{"asking", "direct", "shared"}

// String returns the mode as metrics and status show it.
func (m Mode) String() string { return modeNames[m] }

// Why a source is not shared.
const (
	whyConflict = "another replica has other files for its model"
	whyReplay   = "it has no replay port"
)

// Answer is what an engine's metrics page said.
type Answer struct {
	Started uint64 // Unix ms; 0: the page does not say
	Block   int    // tokens; 0: the page does not say
	Failed  bool   // the page could not be read
}

// Log is what the group's log knows of the source.
type Log struct {
	Inc, Next        uint64
	Unclaimed        bool // all other members have said that they know nothing of it
	Reader           bool // the log wants this replica to read the stream
	Standby          bool // it is the next in line
	HasStayingReader bool // another member reads it, and goes on doing so
}

// Facts hold at the moment of an Advance.
type Facts struct {
	Wall     uint64 // Unix ms
	Ready    bool   // models have been read
	Settled  bool   // the replica has found its group
	Conflict bool   // another replica reads the source's tokens in another way
	Log      Log
	// Stalled is for how long the log has stood still while the engine worked; 0 for
	// an engine that rests.
	Stalled time.Duration
}

// Kind is what an Action does.
type Kind uint8

// Kinds of action.
const (
	Ask    Kind = iota // read the engine's metrics page and hand the answer to Plan.Answer
	Become             // empty the content; Mode and Inc hold from now on
	Name               // Inc holds from now on; the content stays
	Open               // read the stream
	Shut               // stop reading it
	Renew              // make the stream's connection anew
	List               // put the source into the group's log
	Unlist             // take it out
)

// Action is something to be done, in the order of Advance's result.
type Action struct {
	Kind   Kind
	Mode   Mode
	Inc    uint64
	Reason string // of Become Direct, and of Renew
	Cold   bool   // of Open: from the stream's beginning rather than from the content's position
}

// Plan is the state of one source. Its methods are inputs, except Mode, Inc and Why.
type Plan struct {
	replay bool
	mode   Mode
	inc    uint64
	why    string
	out    []Action

	asking bool          // an answer is awaited
	askAt  time.Duration // not asked before
	since  time.Duration // asking began; negative: not yet
	verify bool          // the page is to be read again
	final  bool          // nothing will change how it is read
	begun  bool          // restarted says what the stream showed since the answer before
	wiped  bool          // another engine, or its history is gone

	reads  bool
	cold   bool
	warm   bool // it was opened at the content's position
	paged  bool // pages are merged by what the reader remembers of them
	listed bool
	parts  time.Duration // not listed after; 0: it does not part
	shared time.Duration // since when

	own     time.Duration // until then it is read here whatever the log wants
	suspect time.Duration // stalls shorter than this raise no suspicion
	doubted time.Duration // since when the log is suspected; 0: it is not
}

// New returns the plan of a stream with or without a replay port.
func New(replay bool) *Plan {
	return &Plan{replay: replay, since: -1, suspect: stallLimit}
}

// NewAlone returns the plan of a stream that is shared with nobody: it is read.
func NewStandalone() *Plan {
	return &Plan{mode: Direct, final: true, since: -1, suspect: stallLimit}
}

// Mode returns who writes the content.
func (p *Plan) Mode() Mode { return p.mode }

// Inc returns the incarnation under which this replica's reader reads; 0: none yet.
func (p *Plan) Inc() uint64 { return p.inc }

// Why says why a source is Direct.
func (p *Plan) Reason() string { return p.why }

// Reads reports whether the stream is open, or is being opened.
func (p *Plan) Reads() bool { return p.reads }

// Listed reports whether the source is in the group's log.
func (p *Plan) Listed() bool { return p.listed }

// Suspect reports since when the log is believed to be behind its engine; 0: it is not.
func (p *Plan) Suspect() time.Duration { return p.doubted }

// Connected says that the stream was connected: the engine may be another.
func (p *Plan) Connected() { p.verify = true }

// Paged says that the engine's pages are small: a reader that goes on where another one
// was does not know what the pages before belong to. So it reads what the engine can replay,
// and readers change only when one is gone.
func (p *Plan) Paged() {
	if p.paged {
		return
	}
	p.paged = true
	if p.reads && p.warm && p.mode == Shared {
		p.shut()
	}
}

// Restarted says that the stream's engine turned out to be another one (wiped), or
// to have dropped what follows the content's position from its replay ring. Nothing is
// taken from that stream any more: it is opened anew once the page has been read, which may
// be at once.
func (p *Plan) Restarted(wiped bool) {
	p.begun, p.wiped, p.verify = true, p.wiped || wiped, true
	p.askAt = 0
	if p.mode == Shared {
		p.shut()
	}
}

// Overtaken says that the log is at an incarnation later than this replica's reader.
func (p *Plan) Superseded(inc uint64) {
	if p.mode == Shared && inc > p.inc {
		p.shut() // and goes on from the log's position
		p.inc, p.verify = inc, true
		p.act(Action{Kind: Name, Inc: inc})
	}
}

// Distrusted says that the content was found wrong: it is read again from the
// stream's beginning, under a greater incarnation that the other members follow.
func (p *Plan) Invalidated(now time.Duration, log Log) {
	if p.mode == Shared {
		p.anew(now, max(p.inc, log.Inc)+1, true)
		p.own = now + ownPause
	}
}

// anew gives up the content for another incarnation. It is read from the stream's
// beginning when cold.
func (p *Plan) anew(now time.Duration, inc uint64, cold bool) {
	p.shut()
	if p.listed {
		p.listed = false
		p.act(Action{Kind: Unlist}) // what the log knows is of an older life
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
