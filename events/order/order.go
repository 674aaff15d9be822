package order

import (
	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// phase is the state of an order.
type phase uint8

const (
	phaseDown   phase = iota // no connection
	phaseReplay              // live batches wait until a replay has caught up
	phaseLive                // live batches are applied
)

// Kind is the type of an action.
type Kind uint8

// Kinds of actions.
const (
	Apply  Kind = iota + 1 // apply the batch seq with payload
	Clear                  // remove all data of the source
	Replay                 // request a replay from seq, as attempt
)

// Action is an instruction to the owner. Payload is valid until the next call of the order.
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
	recentBatches = 8 // payload hashes kept to distinguish a duplicate from a restart
	maxStalls     = 3 // replays without progress before a gap is given up
	maxFailures   = 2 // failed replays before live batches are applied anyway
	maxChecks     = 3 // replays that look for batches lost while a connection was new
)

// Order sequences the batches of one source. From sequence numbers and payload hashes alone it
// decides when to apply, when to request a replay, and whether the engine has restarted. It has no
// clock, socket or goroutine: the owner calls a method for each event and executes the actions in
// order before the next call. DESIGN.md has the rules.
type Order struct {
	hasReplay bool
	out       []Action

	phase      phase
	have       bool                 // last is valid
	last       uint64               // last batch applied
	recent     [recentBatches]sumAt // of last and those before it
	base       uint64               // first batch applied since the data was cleared
	peak       uint64               // highest live batch of this connection, plus one
	mayBeWrong bool                 // a batch was or may have been lost: entries may be wrong
	wrongUntil uint64               // a cache cleared by this batch or a later one ends doubt
	attempt    uint32               // current or latest replay attempt
	pending    bool                 // a replay is in progress
	rebuild    bool                 // the replay starts from scratch
	checked    bool                 // the replay's first reply has been compared
	started    uint64               // value of last when the replay was requested
	stalls     int                  // consecutive replays without new batches
	failures   int                  // consecutive failed replays
	delivered  bool                 // this connection has delivered a batch, so its subscription works
	checks     int                  // replays that looked for lost batches since it was made
	held       held                 // early batches
	wrapped    bool                 // at the last restart the ring began after the last applied batch: it may be the same engine
	counts     Counts
}

// Counts counts exceptional events of a stream.
type Counts struct {
	Gaps       uint64 // gaps in the live stream or in a replay
	Lost       uint64 // batches given up
	Restarts   uint64 // engines that turned out to be different ones
	Rebuilds   uint64 // replays from scratch to end a doubt
	Duplicates uint64 // duplicate batches
}

// Sum is the hash by which two batches are compared.
func Sum(payload []byte) uint64 { return xxhash.Sum64(payload) }

type sumAt struct {
	seq, sum uint64
	valid    bool
}

// New returns the order of a new source. hasReplay means that its engine has a replay socket.
func New(hasReplay bool) *Order {
	return &Order{hasReplay: hasReplay}
}

// Resume starts from a known position: entries up to seq, whose payload hash is sum, have been
// applied.
func (o *Order) Resume(seq, sum uint64) {
	o.have, o.last, o.base = true, seq, seq
	o.recent[seq%recentBatches] = sumAt{seq, sum, true}
}

// State returns how reliable the applied data is.
func (o *Order) State() knowledge.State {
	switch {
	case o.phase == phaseLive && !o.mayBeWrong && o.base == 0:
		return knowledge.Exact
	case o.phase == phaseLive && !o.mayBeWrong:
		return knowledge.Partial
	case o.phase == phaseLive, o.phase == phaseDown:
		return knowledge.Approximate
	default:
		return knowledge.CatchingUp
	}
}

// Lag returns the number of known batches that are not applied.
func (o *Order) Lag() uint64 {
	if o.have {
		return max(o.peak, o.last+1) - o.last - 1
	}
	return uint64(len(o.held.list))
}

// suspect marks entries as suspect until batch seq or a later one clears the cache.
func (o *Order) suspect(seq uint64) {
	if !o.mayBeWrong || seq > o.wrongUntil {
		o.wrongUntil = seq
	}
	o.mayBeWrong = true
}

// Connected must be called when a connection has been established and subscribed.
func (o *Order) Connected() []Action {
	o.out = o.out[:0]
	o.held.clear()
	o.peak, o.stalls, o.failures = 0, 0, 0
	o.delivered, o.checks = false, 0
	if o.hasReplay {
		o.catchUp()
		return o.out
	}
	// Nothing proves that the engine is the same and that no batch was lost.
	o.phase = phaseLive
	o.suspect(o.Next())
	return o.out
}

// Next returns the number of the batch after the last one.
func (o *Order) Next() uint64 {
	if o.have {
		return o.last + 1
	}
	return 0
}

// Disconnected must be called when the connection is lost.
func (o *Order) Disconnected() {
	o.phase, o.pending = phaseDown, false
	o.held.clear()
}

// MarkUnreadable must be called when batch seq could not be read, because its content is unknown.
func (o *Order) MarkUnreadable(seq uint64) { o.suspect(seq + 1) }

// Confirm must be called when the entries were verified by other means.
func (o *Order) Confirm() {
	if o.phase == phaseLive {
		o.mayBeWrong = false
	}
}

// Cleared must be called when batch seq has cleared the cache, which makes earlier data irrelevant.
func (o *Order) Cleared(seq uint64) {
	o.base = 0
	if o.mayBeWrong && seq >= o.wrongUntil {
		o.mayBeWrong = false
	}
}

// Live handles a batch of the live stream.
func (o *Order) Live(seq uint64, payload []byte) []Action {
	o.out = o.out[:0]
	o.peak = max(o.peak, seq+1)
	o.delivered = true
	if o.checking() {
		o.pending = false // the number of this batch says whether one is missing
	}
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

// first handles the first batch of a source.
func (o *Order) first(seq uint64, payload []byte) {
	if seq == 0 {
		o.mayBeWrong = false
	} else if o.hasReplay && !o.mayBeWrong {
		// The replay was empty, but here is a later batch.
		o.gap(seq, payload)
		return
	}
	o.base = seq
	o.apply(seq, payload)
}

// gap handles a live batch after missing ones.
func (o *Order) gap(seq uint64, payload []byte) {
	if o.hasReplay && !o.mayBeWrong {
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

// backward handles a sequence number below the last one: the engine has restarted.
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

// forget removes all data of the source.
func (o *Order) forget() {
	o.out = append(o.out, Action{Kind: Clear})
	o.have, o.mayBeWrong = false, false
	o.recent = [recentBatches]sumAt{}
}

// apply emits an Apply action.
func (o *Order) apply(seq uint64, payload []byte) {
	o.have, o.last = true, seq
	o.recent[seq%recentBatches] = sumAt{seq, Sum(payload), true}
	o.out = append(o.out, Action{Kind: Apply, Seq: seq, Payload: payload})
}

// seen reports whether a batch is among the last applied ones.
func (o *Order) seen(seq uint64, payload []byte) bool {
	r := o.recent[seq%recentBatches]
	return r.valid && r.seq == seq && r.sum == Sum(payload)
}

// catchUp holds live batches and requests a replay: from the last batch on, inclusive, or of
// everything if the data is suspect.
func (o *Order) catchUp() {
	o.phase = phaseReplay
	o.ask(o.mayBeWrong)
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

// Replayed handles one batch of the replay.
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

// opening handles the first reply of an attempt, and reports whether the reply needs no further
// handling.
func (o *Order) opening(seq uint64, payload []byte) bool {
	if o.rebuild {
		// Clear only now, when replayed data arrives: an attempt without data keeps the old data.
		if o.have {
			o.counts.Rebuilds++
			o.forget()
		}
		o.phase, o.mayBeWrong = phaseReplay, false
		return false
	}
	if seq != o.last || !o.seen(seq, payload) {
		o.another()
		o.wrapped = seq > o.last
	}
	return true
}

// another handles a replaced engine, or one whose history since the last batch is gone.
func (o *Order) another() {
	o.counts.Restarts++
	o.wrapped = false
	o.forget()
	o.phase = phaseReplay
	o.ask(true)
}

// ReplayEnded must be called at the end of a replay.
func (o *Order) ReplayEnded(attempt uint32) []Action {
	o.out = o.out[:0]
	if !o.pending || attempt != o.attempt {
		return o.out
	}
	o.pending, o.failures = false, 0
	if !o.checked {
		if o.have {
			// Not even the last batch is available.
			o.another()
			return o.out
		}
		o.mayBeWrong = false // nothing has been published yet
	}
	o.settle()
	return o.out
}

// settle goes live after a replay, or requests the batches that are still missing.
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
		o.goOn() // no replay can provide them
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

// ReplayFailed must be called when a replay is unavailable or broke off.
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

// goOn applies held batches despite missing ones.
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

// Timeout must be called some time after [Order.NeedsTimeout] has returned true. It repeats a failed
// replay, rebuilds suspect data, or checks a connection that has delivered no batch. Batches that the
// engine published after the replay, but before it knew of the subscription, were never sent.
func (o *Order) Timeout() []Action {
	o.out = o.out[:0]
	if !o.hasReplay || o.pending {
		return o.out
	}
	switch {
	case o.phase == phaseReplay:
		o.ask(false)
	case o.phase == phaseLive && o.mayBeWrong:
		// Batches were skipped, so a full replay is required.
		o.ask(true)
	case o.unchecked():
		o.checks++
		o.ask(false)
	}
	return o.out
}
