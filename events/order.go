package events

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

// actionKind is what the owner of an order has to do.
type actionKind uint8

const (
	actApply  actionKind = iota + 1 // apply the batch seq with payload
	actClear                        // forget everything of the source
	actReplay                       // ask for a replay from seq, as attempt
)

// action is one thing to do. payload is valid until the next call of the
// order.
type action struct {
	kind    actionKind
	attempt uint32
	seq     uint64
	payload []byte
}

// Bounds of one order.
const (
	heldBatches   = 4096
	heldBytes     = 4 << 20
	recentBatches = 8 // payload hashes kept, to tell a duplicate from a restart
	maxStalls     = 3 // replays without progress before a hole is given up
	maxFailures   = 2 // failed replays before live batches are applied without
)

// order puts the batches of one source in sequence: it knows when to apply,
// when to ask for a replay, and when the engine has been restarted, from
// sequence numbers and payload hashes alone. It has no clock, socket or
// goroutine: the owner calls a method for each thing that happens and then
// carries out the actions, in order, before it calls the next. DESIGN.md has
// the rules.
type order struct {
	hasReplay bool
	out       []action

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
	counts   orderCounts
}

// orderCounts are the rare things that happened to a stream.
type orderCounts struct {
	gaps       uint64 // holes in the live stream or in a replay
	lost       uint64 // batches given up
	restarts   uint64 // engines that turned out to be another one
	rebuilds   uint64 // replays from scratch to end a doubt
	duplicates uint64 // batches that came twice
}

// sumOf is the hash by which two batches are compared.
func sumOf(payload []byte) uint64 { return xxhash.Sum64(payload) }

type sumAt struct {
	seq, sum uint64
	valid    bool
}

func newOrder(hasReplay bool) *order {
	return &order{hasReplay: hasReplay}
}

// resume starts from a position that somebody else has reached: entries up to
// seq, whose payload hash is sum, are known.
func (o *order) resume(seq, sum uint64) {
	o.have, o.last, o.base = true, seq, seq
	o.recent[seq%recentBatches] = sumAt{seq, sum, true}
}

// state tells how far knowledge can be trusted.
func (o *order) state() knowledge.State {
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

// lag returns the batches that are known to exist and not applied.
func (o *order) lag() uint64 {
	if o.have {
		return max(o.peak, o.last+1) - o.last - 1
	}
	return uint64(len(o.held.list))
}

// suspect marks entries as doubtful until the cache is emptied by batch seq
// or a later one.
func (o *order) suspect(seq uint64) {
	if !o.doubt || seq > o.doubtAt {
		o.doubtAt = seq
	}
	o.doubt = true
}

// connected is called when a connection has been made and its subscription
// sent.
func (o *order) connected() []action {
	o.out = o.out[:0]
	o.held.clear()
	o.peak, o.stalls, o.failures = 0, 0, 0
	if o.hasReplay {
		o.catchUp()
		return o.out
	}
	// Nothing proves that the engine is the same and that nothing was lost.
	o.phase = phaseLive
	o.suspect(o.next())
	return o.out
}

// next is the batch that follows the last one.
func (o *order) next() uint64 {
	if o.have {
		return o.last + 1
	}
	return 0
}

// disconnected is called when the connection is gone.
func (o *order) disconnected() {
	o.phase, o.pending = phaseDown, false
	o.held.clear()
}

// distrust is called when the batch seq could not be read: it may have held
// anything.
func (o *order) distrust(seq uint64) { o.suspect(seq + 1) }

// vouch is called when somebody has verified the entries by other means.
func (o *order) vouch() {
	if o.phase == phaseLive {
		o.doubt = false
	}
}

// cleared is called when the batch seq has emptied the cache: what was known
// before, right or wrong, does not matter any more.
func (o *order) cleared(seq uint64) {
	o.base = 0
	if o.doubt && seq >= o.doubtAt {
		o.doubt = false
	}
}

// live takes a batch of the live stream.
func (o *order) live(seq uint64, payload []byte) []action {
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
		o.counts.gaps++
		o.gap(seq, payload)
	case o.seen(seq, payload):
		o.counts.duplicates++
	default:
		o.backward(seq, payload)
	}
	return o.out
}

// first handles the first batch ever seen.
func (o *order) first(seq uint64, payload []byte) {
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
func (o *order) gap(seq uint64, payload []byte) {
	if o.hasReplay && !o.doubt {
		o.held.addLive(seq, payload)
		o.catchUp()
		return
	}
	o.giveUp(seq)
	o.apply(seq, payload)
}

// giveUp counts the batches before seq as lost.
func (o *order) giveUp(seq uint64) {
	if o.have {
		o.counts.lost += seq - o.last - 1
	} else {
		o.base = seq
	}
	o.suspect(seq)
}

// backward handles a sequence number that was passed already: the engine has
// started again.
func (o *order) backward(seq uint64, payload []byte) {
	o.peak = seq + 1
	if o.hasReplay {
		o.held.addLive(seq, payload)
		o.catchUp()
		return
	}
	o.counts.restarts++
	o.wrapped = false
	o.forget()
	if o.base = seq; seq != 0 {
		o.suspect(seq)
	}
	o.apply(seq, payload)
}

// forget drops everything known of the source.
func (o *order) forget() {
	o.out = append(o.out, action{kind: actClear})
	o.have, o.doubt = false, false
	o.recent = [recentBatches]sumAt{}
}

// apply hands a batch on.
func (o *order) apply(seq uint64, payload []byte) {
	o.have, o.last = true, seq
	o.recent[seq%recentBatches] = sumAt{seq, sumOf(payload), true}
	o.out = append(o.out, action{kind: actApply, seq: seq, payload: payload})
}

// seen reports whether a batch is one of the latest that were applied.
func (o *order) seen(seq uint64, payload []byte) bool {
	r := o.recent[seq%recentBatches]
	return r.valid && r.seq == seq && r.sum == sumOf(payload)
}

// catchUp holds live batches and asks for a replay: from the last batch on,
// that one included, or of everything when what is known is in doubt.
func (o *order) catchUp() {
	o.phase = phaseReplay
	o.ask(o.doubt)
}

// ask starts a replay attempt.
func (o *order) ask(rebuild bool) {
	o.attempt++
	o.pending, o.checked, o.rebuild, o.started = true, false, rebuild || !o.have, o.last
	from := o.last
	if o.rebuild {
		from = 0
	}
	o.out = append(o.out, action{kind: actReplay, seq: from, attempt: o.attempt})
}

// replayed takes one batch of the replay.
func (o *order) replayed(attempt uint32, seq uint64, payload []byte) []action {
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
func (o *order) opening(seq uint64, payload []byte) bool {
	if o.rebuild {
		// Everything comes again, so everything goes, but only from here on:
		// an attempt that brings nothing leaves what is known.
		if o.have {
			o.counts.rebuilds++
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
func (o *order) another() {
	o.counts.restarts++
	o.wrapped = false
	o.forget()
	o.phase = phaseReplay
	o.ask(true)
}

// replayEnded is called when the end of a replay has come.
func (o *order) replayEnded(attempt uint32) []action {
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
func (o *order) settle() {
	o.drain()
	if _, waiting := o.held.oldest(); !waiting && o.peak <= o.next() {
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
	o.counts.gaps++
	o.phase = phaseReplay
	o.ask(false)
}

// skipTo gives up the batches before seq, which is held.
func (o *order) skipTo(seq uint64) {
	o.giveUp(seq)
	b := o.held.pop()
	o.apply(b.seq, b.payload)
}

// drain applies held batches that follow the last one.
func (o *order) drain() {
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

// replayFailed is called when a replay cannot be had, or broke off.
func (o *order) replayFailed(attempt uint32) []action {
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
func (o *order) goOn() {
	o.phase, o.stalls = phaseLive, 0
	o.suspect(max(o.peak, o.next()))
	for {
		o.drain()
		oldest, waiting := o.held.oldest()
		if !waiting {
			return
		}
		o.skipTo(oldest)
	}
}

// timeout is called some time after a replay has failed, and now and then
// while knowledge is in doubt: it tries again.
func (o *order) timeout() []action {
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
