package order

// Down reports whether the stream has no connection.
func (o *Order) Down() bool { return o.phase == phaseDown }

// IsLive reports whether live batches are applied as they come.
func (o *Order) IsLive() bool { return o.phase == phaseLive }

// Suspect reports whether a batch was lost, or may have been.
func (o *Order) Suspect() bool { return o.doubt }

// Complete reports whether everything was applied from the engine's first batch on, or
// since its cache was last empty.
func (o *Order) Complete() bool { return o.base == 0 }

// Replays reports whether the engine has a replay socket.
func (o *Order) Replays() bool { return o.hasReplay }

// NeedsTimeout reports whether Timeout is to be called after a while.
func (o *Order) NeedsTimeout() bool {
	return o.hasReplay && !o.pending && (o.phase == phaseReplay || o.phase == phaseLive && o.doubt)
}

// Wrapped reports whether, at the last restart, the engine's ring began behind what was
// applied: it may be the same engine.
func (o *Order) Wrapped() bool { return o.wrapped }

// Counts returns the rare things that happened so far.
func (o *Order) Counts() Counts { return o.counts }

// Last returns the last batch applied and the hash of its payload; ok is false while there
// is none.
func (o *Order) Last() (seq, sum uint64, ok bool) {
	return o.last, o.recent[o.last%recentBatches].sum, o.have
}
