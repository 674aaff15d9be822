package engine

import "slices"

// schedule plans one step: it fills e.planned and e.load, and takes the
// memory that the step needs.
func (e *Engine) schedule() {
	e.planned = e.planned[:0]
	e.load = load{}
	e.blocked = false
	budget := e.cfg.MaxBatchTokens
	preempted := e.scheduleRunning(&budget)
	e.res.Preempted = preempted
	if preempted == 0 {
		e.scheduleWaiting(&budget)
	}
}

// scheduleRunning plans the running requests in order of admission. When memory runs out, it
// preempts the last one; with priorities, the lowest-ranked one that is not planned yet.
func (e *Engine) scheduleRunning(budget *int) (preempted int) {
	for i := 0; i < len(e.running) && *budget > 0; i++ {
		s := e.running[i]
		n := e.chunk(s.total-s.computed, *budget)
		for !e.allocate(s, n, nil) {
			at := e.victim(i)
			last := e.running[at]
			e.running = slices.Delete(e.running, at, at+1)
			e.preempt(last)
			preempted++
			if last == s {
				return preempted
			}
		}
		e.plan(s, n)
		*budget -= n
	}
	return preempted
}

// victim returns which of the running requests from position i on is preempted.
func (e *Engine) victim(i int) int {
	last := len(e.running) - 1
	if e.cfg.ByPriority {
		for k := i; k < len(e.running); k++ {
			if e.running[last].before(e.running[k]) {
				last = k
			}
		}
	}
	return last
}

// scheduleWaiting admits waiting requests, first come first served or by priority. It skips only
// requests whose adapter has no free slot.
func (e *Engine) scheduleWaiting(budget *int) {
	for i := 0; i < e.waiting.len() && *budget > 0; {
		if len(e.running) >= e.cfg.MaxSeqs {
			e.blocked = true
			return
		}
		s := e.waiting.at(i)
		if !e.adapterFits(s.Adapter) {
			i++
			continue
		}
		hits, loaded := e.lookup(s)
		held := len(hits) + loaded
		s.computed = held * e.cfg.BlockSize
		n := e.chunk(s.total-s.computed, *budget)
		if !e.roomFor(s, len(hits)) || !e.allocate(s, n, hits) {
			s.computed = 0
			e.blocked = true
			return
		}
		e.waiting.remove(i)
		e.admit(s, held)
		e.plan(s, n)
		if !s.Remote && s.Fetched <= len(hits) {
			e.load.addLoad(&e.cfg.Host.Load, loaded*e.cfg.BlockSize)
		}
		*budget -= n
	}
	e.blocked = *budget > 0
}

func (e *Engine) chunk(n, budget int) int {
	if t := e.cfg.LongPrefillThreshold; t > 0 && n > t {
		n = t
	}
	return min(n, budget)
}

func (e *Engine) adapterFits(adapter uint32) bool {
	if e.cfg.MaxAdapters == 0 || adapter == 0 {
		return true
	}
	e.adapters = e.adapters[:0]
	for _, s := range e.running {
		if s.Adapter == adapter {
			return true
		}
		if s.Adapter != 0 && !contains(e.adapters, s.Adapter) {
			e.adapters = append(e.adapters, s.Adapter)
		}
	}
	return len(e.adapters) < e.cfg.MaxAdapters
}

// loadAdapter makes an adapter the most recently used one, and loads it if necessary.
func (e *Engine) loadAdapter(adapter uint32) {
	if e.cfg.AdapterLoad == 0 || adapter == 0 {
		return
	}
	if i := slices.Index(e.loaded, adapter); i >= 0 {
		e.loaded = slices.Delete(e.loaded, i, i+1)
	} else {
		e.load.loadBase += e.cfg.AdapterLoad.Nanoseconds() * 1000
		e.stats.AdapterLoads++
		if n := e.cfg.AdapterSlots; n > 0 && len(e.loaded) >= n {
			e.loaded = slices.Delete(e.loaded, 0, 1)
		}
	}
	e.loaded = append(e.loaded, adapter)
}

func contains(list []uint32, v uint32) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

// roomFor reports whether a request may start as far as its whole prompt goes.
func (e *Engine) roomFor(s *seq, hits int) bool {
	bs := e.cfg.BlockSize
	return !e.cfg.AdmitWhole || (s.total+bs-1)/bs-hits <= e.pool.free
}

// lookup returns the leading cached blocks of a waiting request, and how many
// behind them the host tier has. The last token is always computed, so a prompt
// that is cached to its end misses its last block.
func (e *Engine) lookup(s *seq) (hits []int32, loaded int) {
	e.hits = e.hits[:0]
	if e.cfg.NoPrefixCache {
		return e.hits, 0
	}
	most := (s.total - 1) / e.cfg.BlockSize
	for i := range most {
		b, ok := e.pool.lookup(s.hash(i))
		if !ok {
			break
		}
		e.hits = append(e.hits, b)
	}
	if s.Remote {
		return e.hits, most - len(e.hits)
	}
	if s.Fetched > len(e.hits) {
		return e.hits, min(s.Fetched, most) - len(e.hits)
	}
	if e.host == nil {
		return e.hits, 0
	}
	for i := len(e.hits); i < most && e.host.use(s.hash(i)); i++ {
		loaded++
	}
	return e.hits, loaded
}

// allocate allocates memory for n more tokens of s, part of which is in hits, and registers the
// blocks that become full. If memory is short, it returns false without any change.
func (e *Engine) allocate(s *seq, n int, hits []int32) bool {
	bs := e.cfg.BlockSize
	fresh := (s.computed+n+bs-1)/bs - len(s.blocks) - len(hits)
	need := fresh
	for _, b := range hits {
		if e.pool.ref[b] == 0 {
			need++
		}
	}
	if need > e.pool.free {
		return false
	}
	for _, b := range hits {
		e.pool.touch(b)
		s.blocks = append(s.blocks, b)
	}
	for range fresh {
		s.blocks = append(s.blocks, e.pool.take())
	}
	if !e.cfg.NoPrefixCache {
		if len(hits) > 0 {
			s.registered = len(hits)
			e.report(s)
		}
		e.register(s, (s.computed+n)/bs)
	}
	return true
}

// register enters the blocks of s up to full in the prefix cache.
func (e *Engine) register(s *seq, full int) {
	from := s.registered
	if full <= from {
		return
	}
	for i := from; i < full; i++ {
		e.pool.register(s.blocks[i], s.hash(i))
	}
	s.registered = full
	e.stored(s, from, full)
	if e.host != nil {
		e.keep(s, from, full)
	}
}

// keep copies blocks [from, to) of s to the host tier. The events of that tier
// name single blocks.
func (e *Engine) keep(s *seq, from, to int) {
	for i := from; i < to; i++ {
		h := s.hash(i)
		gone, evicted, added := e.host.put(h)
		if !e.cfg.Events {
			continue
		}
		if evicted {
			e.events = append(e.events, Event{Kind: Removed, Hash: gone, Host: true})
		}
		if added {
			e.events = append(e.events, Event{Kind: Stored, Hash: h, Host: true})
		}
	}
}

// report announces the hit prefix of a request that sets Report.
func (e *Engine) report(s *seq) {
	if s.Report && s.cached < 0 {
		e.stored(s, 0, s.registered)
	}
}

// stored records an event for the blocks [from, to) of s.
func (e *Engine) stored(s *seq, from, to int) {
	if !e.cfg.Events {
		return
	}
	ev := Event{Kind: Stored, Offset: from, Tag: s.Tag}
	if from > 0 {
		ev.HasParent, ev.Parent = true, s.hash(from-1)
	}
	if to <= len(s.Blocks) {
		ev.Hashes = s.Blocks[from:to:to]
	} else {
		at := len(e.names)
		for i := from; i < to; i++ {
			e.names = append(e.names, s.hash(i))
		}
		ev.Hashes = e.names[at:len(e.names):len(e.names)]
	}
	if s.Tokens != nil {
		bs := e.cfg.BlockSize
		ev.Tokens = s.Tokens[from*bs : to*bs : to*bs]
	}
	e.events = append(e.events, ev)
}

func (e *Engine) admit(s *seq, hits int) {
	e.running = append(e.running, s)
	e.loadAdapter(s.Adapter)
	if s.cached >= 0 {
		return // resumed
	}
	s.cached = hits * e.cfg.BlockSize
	e.res.Admitted = append(e.res.Admitted, s.ID)
	e.stats.QueryTokens += uint64(s.Prompt)
	e.stats.HitTokens += uint64(s.cached)
}

func (e *Engine) plan(s *seq, n int) {
	if s.decoding() {
		e.load.addDecode(s.computed + 1)
	} else {
		e.load.addPrefill(n, s.computed)
	}
	s.chunk = n
	e.planned = append(e.planned, s)
}

// preempt gives back the memory of a running request and puts it at the head
// of the waiting queue, or where its priority places it, to be computed again.
func (e *Engine) preempt(s *seq) {
	e.giveBack(s)
	s.preempted++
	s.Remote, s.Fetched = false, 0 // a preempted request computes all blocks itself
	e.stats.Preemptions++
	if e.cfg.ByPriority {
		e.waiting.insert(s)
	} else {
		e.waiting.pushFront(s)
	}
}

// giveBack releases the blocks of s, last block first, so that the end of a
// prefix is evicted before its beginning.
func (e *Engine) giveBack(s *seq) {
	for i := len(s.blocks) - 1; i >= 0; i-- {
		e.pool.release(s.blocks[i])
	}
	s.blocks = s.blocks[:0]
	s.computed, s.registered = 0, 0
}
