package clusters

import "time"

// cut reports whether the link between two clusters is cut.
func (w *world) cut(a, b int) bool { return w.now < w.cuts[[2]int{min(a, b), max(a, b)}] }

// fault applies one fault and schedules the next one, until the quiet period at the end.
func (w *world) fault() {
	end := w.o.Length - w.o.Quiet
	if w.now >= end {
		return
	}
	w.at(w.now+w.rng.ExpFloat64()*4, w.fault)
	i := w.rng.IntN(len(w.clusters))
	s := w.clusters[i]
	for1 := min(w.now+w.rng.ExpFloat64()*8, end)
	switch w.rng.IntN(4) {
	case 0:
		j := w.rng.IntN(len(w.clusters))
		w.cuts[[2]int{min(i, j), max(i, j)}] = for1
	case 1: // the whole cluster and its state
		s.deadTil = for1
		_ = w.control.start(i)
		for i, e := range s.engines {
			e.held, e.free = nil, w.now
			s.first.set(i, w.now)
		}
	case 2: // all its engines; its gateway and picker live
		for _, e := range s.engines {
			e.down = true
		}
		w.at(for1, func() {
			for _, e := range s.engines {
				e.down, e.held = false, nil
			}
		})
	case 3: // its picker, restarted at once
		_ = w.control.start(i)
	}
}

// finish compares the state of the federation at the end with the true state.
func (w *world) finish() {
	w.out.Seconds = w.o.Length
	others := len(w.clusters) - 1
	if w.o.Policy == Alone {
		others = 0
	}
	for i, s := range w.clusters {
		for _, st := range s.fleet.Status(clock(w.o.Length + drained/2 - 1)) {
			if st.Result != "candidate" && st.Result != "no address" {
				w.out.Unsettled++
			}
		}
		if v := w.control.cores[i].View(clock(w.o.Length + drained/2 - 1)); len(v.Clusters) != others {
			w.out.Unsettled++
		}
		for _, e := range s.engines {
			if e.requests != 0 && w.now < w.o.Length+drained {
				w.out.Leaked++
			}
		}
	}
}

// inMilliseconds rounds seconds for tables.
func inMilliseconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}
