package extproc

// ServedStatus compares the endpoints that have answered with those that were
// chosen, over all requests since the start.
type ServedStatus struct {
	Chosen  uint64 `json:"chosen"`
	Next    uint64 `json:"next"`      // a further destination that was named
	Unnamed uint64 `json:"elsewhere"` // not named by the picker
	Unknown uint64 `json:"unknown"`   // the proxy does not report it
	// Problem is the likely cause while the proxy mostly goes elsewhere.
	Problem string `json:"problem,omitempty"`
}

// Served returns how well the proxies follow the picker.
func (p *Processor) Served() ServedStatus {
	s := ServedStatus{Problem: p.served.Problem()}
	s.Chosen, s.Next, s.Unnamed, s.Unknown = p.served.Counts()
	return s
}

// noteServed compares who answered with who was chosen, once per request.
func (st *stream) noteServed() {
	if st.decision == nil || st.back.status < 100 {
		return
	}
	by, warn := st.p.served.Add(st.sent, st.back.served, st.p.opts.Now())
	st.p.metrics.served.WithLabelValues(by).Inc()
	if warn {
		st.p.opts.Log.Warn("answers come from endpoints that were not chosen", "problem", st.p.served.Problem())
	}
}
