package order

// Down reports whether the stream has no connection.
func (o *Order) Down() bool { return o.phase == phaseDown }

// IsLive reports whether live batches are applied as they come.
func (o *Order) IsLive() bool { return o.phase == phaseLive }

// Suspect reports whether a batch was or may have been lost.
func (o *Order) Suspect() bool { return o.mayBeWrong }

// Complete reports whether every batch was applied since the engine's first one, or since its cache
// was last empty.
func (o *Order) Complete() bool { return o.base == 0 }

// Replays reports whether the engine has a replay socket.
func (o *Order) Replays() bool { return o.hasReplay }

// NeedsTimeout reports whether Timeout must be called later.
func (o *Order) NeedsTimeout() bool {
	return o.hasReplay && !o.pending && (o.phase == phaseReplay || o.phase == phaseLive && o.mayBeWrong || o.unchecked())
}

// Checks returns how often a connection without batches was checked, and whether another check is due.
func (o *Order) Checks() (done int, due bool) {
	return o.checks, o.hasReplay && !o.pending && o.unchecked()
}

// unchecked reports whether batches may have been lost before the subscription of this connection
// took effect.
func (o *Order) unchecked() bool {
	return o.phase == phaseLive && !o.mayBeWrong && !o.delivered && o.checks < maxChecks
}

// checking reports whether the replay in progress is such a check and has delivered nothing new.
func (o *Order) checking() bool {
	return o.pending && o.phase == phaseLive && !o.mayBeWrong
}

// Wrapped reports whether, at the last restart, the engine's ring began after the last applied
// batch, so that it may be the same engine.
func (o *Order) Wrapped() bool { return o.wrapped }

// Counts returns the counters.
func (o *Order) Counts() Counts { return o.counts }

// Last returns the last applied batch and its payload hash; ok is false if there is none.
func (o *Order) Last() (seq, sum uint64, ok bool) {
	return o.last, o.recent[o.last%recentBatches].sum, o.have
}
