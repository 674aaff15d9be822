package order

import (
	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// phase is what an order is waiting for.
type phase uint8

const (
	phaseDown   phase = iota // no connection
	phaseReplay              // live batches are held until a replay has caught up
	phaseLive                // live batches are applied
)

// Kind is what the owner of an order has to do.
type Kind uint8

// Kinds of actions.
const (
	Apply  Kind = iota + 1 // apply the batch seq with payload
	Clear                  // forget everything of the source
	Replay                 // ask for a replay from seq, as attempt
)

// Action is one thing to do. payload is valid until the next call of the
// order.
type Action struct {
	Kind    Kind
	Attempt uint32
	Seq     uint64
	Payload []byte
}

// Bounds of one order.
const (
	heldBatches   = 4096
	heldBytes     = 4 << 20
	recentBatches = 8 // payload hashes kept, to tell a duplicate from a restart
	maxStalls     = 3 // replays without progress before a hole is given up
	maxFailures   = 2 // failed replays before live batches are applied without
)

// Order puts the batches of one source in sequence: it knows when to apply,
// when to ask for a replay, and when the engine has been restarted, from
// sequence numbers and payload hashes alone. It has no clock, socket or
// goroutine: the owner calls a method for each thing that happens and then
// carries out the actions, in order, before it calls the next. DESIGN.md has
// the rules.
type Order struct {
	hasReplay bool
	out       []Action

	phase    phase
	have     bool                 // last is valid
	last     uint64               // last batch applied
	recent   [recentBatches]sumAt // of last and those before it
	base     uint64               // first batch applied since nothing was known
	peak     uint64               // highest live batch of this connection, plus one
	doubt    bool                 // a batch was lost, or may have been: entries may be wrong
	doubtAt  uint64               // a cache emptied by this batch or a later one is beyond doubt
	attempt  uint32               // replay under way, or the latest
	pending  bool                 // a replay is under way
	rebuild  bool                 // it starts from scratch
	checked  bool                 // its first reply has been compared
	started  uint64               // last when it was asked for
	stalls   int                  // replays in a row that brought nothing
	failures int                  // replays in a row that failed
	held     held                 // batches that came too early
	wrapped  bool                 // at the last restart the ring began behind what was applied: it may be the same engine
	counts   Counts
}

// Counts are the rare things that happened to a stream.
type Counts struct {
	Gaps       uint64 // holes in the live stream or in a replay
	Lost       uint64 // batches given up
	Restarts   uint64 // engines that turned out to be another one
	Rebuilds   uint64 // replays from scratch to end a doubt
	Duplicates uint64 // batches that came twice
}

// Sum is the hash by which two batches are compared.
func Sum(payload []byte) uint64 { return xxhash.Sum64(payload) }

type sumAt struct {
	seq, sum uint64
	valid    bool
}

// New returns the order of a source of which nothing is known, whose engine has a replay socket or
// has none.
func New(hasReplay bool) *Order {
	return &Order{hasReplay: hasReplay}
}

// Resume starts from a position that somebody else has reached: entries up to
// seq, whose payload hash is sum, are known.
func (o *Order) Resume(seq, sum uint64) {
	o.have, o.last, o.base = true, seq, seq
	o.recent[seq%recentBatches] = sumAt{seq, sum, true}
}

// State tells how far knowledge can be trusted.
func (o *Order) State() knowledge.State {
	switch {
	case o.phase == phaseLive && !o.doubt && o.base == 0:
		return knowledge.Exact
	case o.phase == phaseLive && !o.doubt:
		return knowledge.Partial
	case o.phase == phaseLive, o.phase == phaseDown:
		return knowledge.Approximate
	default:
		return knowledge.CatchingUp
	}
}

// Lag returns the batches that are known to exist and not applied.
func (o *Order) Lag() uint64 {
	if o.have {
		return max(o.peak, o.last+1) - o.last - 1
	}
	return uint64(len(o.held.list))
}

// suspect marks entries as doubtful until the cache is emptied by batch seq
// or a later one.
func (o *Order) suspect(seq uint64) {
	if !o.doubt || seq > o.doubtAt {
		o.doubtAt = seq
	}
	o.doubt = true
}

// Connected is called when a connection has been made and its subscription
// sent.
func (o *Order) Connected() []Action {
	o.out = o.out[:0]
	o.held.clear()
	o.peak, o.stalls, o.failures = 0, 0, 0
	if o.hasReplay {
		o.catchUp()
		return o.out
	}
	// Nothing proves that the engine is the same and that nothing was lost.
	o.phase = phaseLive
	o.suspect(o.Next())
	return o.out
}

// Next is the batch that follows the last one.
func (o *Order) Next() uint64 {
	if o.have {
		return o.last + 1
	}
	return 0
}

// Disconnected is called when the connection is gone.
func (o *Order) Disconnected() {
	o.phase, o.pending = phaseDown, false
	o.held.clear()
}

// MarkUnreadable is called when the batch seq could not be read: it may have held
// anything.
func (o *Order) MarkUnreadable(seq uint64) { o.suspect(seq + 1) }

// Confirm is called when somebody has verified the entries by other means.
func (o *Order) Confirm() {
	if o.phase == phaseLive {
		o.doubt = false
	}
}

// Cleared is called when the batch seq has emptied the cache: what was known
// before, right or wrong, does not matter any more.
func (o *Order) Cleared(seq uint64) {
	o.base = 0
	if o.doubt && seq >= o.doubtAt {
		o.doubt = false
	}
}

// Live takes a batch of the live stream.
func (o *Order) Live(seq uint64, payload []byte) []Action {
	o.out = o.out[:0]
	o.peak = max(o.peak, seq+1)
	if o.phase == phaseReplay {
		o.held.addLive(seq, payload)
		return o.out
	}
	switch {
	case !o.have:
		o.first(seq, payload)
	case seq == o.last+1:
		o.apply(seq, payload)
	case seq > o.last+1:
		o.counts.Gaps++
		o.gap(seq, payload)
	case o.seen(seq, payload):
		o.counts.Duplicates++
	default:
		o.backward(seq, payload)
	}
	return o.out
}

// first handles the first batch ever seen.
func (o *Order) first(seq uint64, payload []byte) {
	if seq == 0 {
		o.doubt = false
	} else if o.hasReplay && !o.doubt {
		// The replay said that there was nothing, and here is a later batch.
		o.gap(seq, payload)
		return
	}
	o.base = seq
	o.apply(seq, payload)
}

// gap handles a live batch with others missing before it.
func (o *Order) gap(seq uint64, payload []byte) {
	if o.hasReplay && !o.doubt {
		o.held.addLive(seq, payload)
		o.catchUp()
		return
	}
	o.giveUp(seq)
	o.apply(seq, payload)
}

// giveUp counts the batches before seq as lost.
func (o *Order) giveUp(seq uint64) {
	if o.have {
		o.counts.Lost += seq - o.last - 1
	} else {
		o.base = seq
	}
	o.suspect(seq)
}

// backward handles a sequence number that was passed already: the engine has
// started again.
func (o *Order) backward(seq uint64, payload []byte) {
	o.peak = seq + 1
	if o.hasReplay {
		o.held.addLive(seq, payload)
		o.catchUp()
		return
	}
	o.counts.Restarts++
	o.wrapped = false
	o.forget()
	if o.base = seq; seq != 0 {
		o.suspect(seq)
	}
	o.apply(seq, payload)
}

// forget drops everything known of the source.
func (o *Order) forget() {
	o.out = append(o.out, Action{Kind: Clear})
	o.have, o.doubt = false, false
	o.recent = [recentBatches]sumAt{}
}

// apply hands a batch on.
func (o *Order) apply(seq uint64, payload []byte) {
	o.have, o.last = true, seq
	o.recent[seq%recentBatches] = sumAt{seq, Sum(payload), true}
	o.out = append(o.out, Action{Kind: Apply, Seq: seq, Payload: payload})
}

// seen reports whether a batch is one of the latest that were applied.
func (o *Order) seen(seq uint64, payload []byte) bool {
	r := o.recent[seq%recentBatches]
	return r.valid && r.seq == seq && r.sum == Sum(payload)
}

// catchUp holds live batches and asks for a replay: from the last batch on,
// that one included, or of everything when what is known is in doubt.
func (o *Order) catchUp() {
	o.phase = phaseReplay
	o.ask(o.doubt)
}

// ask starts a replay attempt.
func (o *Order) ask(rebuild bool) {
	o.attempt++
	o.pending, o.checked, o.rebuild, o.started = true, false, rebuild || !o.have, o.last
	from := o.last
	if o.rebuild {
		from = 0
	}
	o.out = append(o.out, Action{Kind: Replay, Seq: from, Attempt: o.attempt})
}

// Replayed takes one batch of the replay.
func (o *Order) Replayed(attempt uint32, seq uint64, payload []byte) []Action {
	o.out = o.out[:0]
	if !o.pending || attempt != o.attempt {
		return o.out
	}
	if !o.checked {
		o.checked, o.failures = true, 0
		if o.opening(seq, payload) {
			return o.out
		}
	}
	switch {
	case !o.have:
		o.base = seq
		o.apply(seq, payload)
	case seq == o.last+1:
		o.apply(seq, payload)
		o.drain()
	case seq > o.last:
		o.held.addReplayed(seq, payload)
	}
	return o.out
}

// opening handles the first reply of an attempt and reports whether it is
// done with.
func (o *Order) opening(seq uint64, payload []byte) bool {
	if o.rebuild {
		// Everything comes again, so everything goes, but only from here on:
		// an attempt that brings nothing leaves what is known.
		if o.have {
			o.counts.Rebuilds++
			o.forget()
		}
		o.phase, o.doubt = phaseReplay, false
		return false
	}
	if seq != o.last || !o.seen(seq, payload) {
		o.another()
		o.wrapped = seq > o.last
	}
	return true
}

// another handles an engine that is not the one whose batches were applied,
// or whose history since then is gone.
func (o *Order) another() {
	o.counts.Restarts++
	o.wrapped = false
	o.forget()
	o.phase = phaseReplay
	o.ask(true)
}

// ReplayEnded is called when the end of a replay has come.
func (o *Order) ReplayEnded(attempt uint32) []Action {
	o.out = o.out[:0]
	if !o.pending || attempt != o.attempt {
		return o.out
	}
	o.pending, o.failures = false, 0
	if !o.checked {
		if o.have {
			// Not even the last batch is there.
			o.another()
			return o.out
		}
		o.doubt = false // nothing was published yet
	}
	o.settle()
	return o.out
}

// settle goes live after a replay, or asks for what is still missing.
func (o *Order) settle() {
	o.drain()
	if _, waiting := o.held.oldest(); !waiting && o.peak <= o.Next() {
		o.phase, o.stalls = phaseLive, 0
		return
	}
	if o.have && (o.rebuild || o.last > o.started) {
		o.stalls = 0
	} else {
		o.stalls++
	}
	if o.stalls >= maxStalls {
		o.goOn() // what no replay has, nobody has
		return
	}
	o.counts.Gaps++
	o.phase = phaseReplay
	o.ask(false)
}

// skipTo gives up the batches before seq, which is held.
func (o *Order) skipTo(seq uint64) {
	o.giveUp(seq)
	b := o.held.pop()
	o.apply(b.seq, b.payload)
}

// drain applies held batches that follow the last one.
func (o *Order) drain() {
	for {
		oldest, ok := o.held.oldest()
		switch {
		case !ok:
			return
		case o.have && oldest <= o.last:
			o.held.pop()
		case o.have && oldest == o.last+1 || !o.have && oldest == 0:
			b := o.held.pop()
			if !o.have {
				o.base = 0
			}
			o.apply(b.seq, b.payload)
		default:
			return
		}
	}
}

// ReplayFailed is called when a replay cannot be had, or broke off.
func (o *Order) ReplayFailed(attempt uint32) []Action {
	o.out = o.out[:0]
	if !o.pending || attempt != o.attempt {
		return o.out
	}
	o.pending = false
	o.failures++
	if o.phase == phaseReplay && o.failures >= maxFailures {
		o.goOn()
	}
	return o.out
}

// goOn applies what is held although batches are missing.
func (o *Order) goOn() {
	o.phase, o.stalls = phaseLive, 0
	o.suspect(max(o.peak, o.Next()))
	for {
		o.drain()
		oldest, waiting := o.held.oldest()
		if !waiting {
			return
		}
		o.skipTo(oldest)
	}
}

// Timeout is called some time after a replay has failed, and now and then
// while knowledge is in doubt: it tries again.
func (o *Order) Timeout() []Action {
	o.out = o.out[:0]
	if !o.hasReplay || o.pending {
		return o.out
	}
	switch {
	case o.phase == phaseReplay:
		o.ask(false)
	case o.phase == phaseLive && o.doubt:
		// Batches were skipped, so only all of them together are right.
		o.ask(true)
	}
	return o.out
}
