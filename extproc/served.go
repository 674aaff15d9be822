package extproc

// ServedStatus compares serving endpoints with chosen ones, over all requests since the start.
type ServedStatus struct {
	Chosen  uint64 `json:"chosen"`
	Next    uint64 `json:"next"`    // another named destination
	Unnamed uint64 `json:"unnamed"` // not named by the picker
	Unknown uint64 `json:"unknown"` // not reported by the proxy
	// Problem is the likely cause if the proxy mostly ignores the picker's choice.
	Problem string `json:"problem,omitempty"`
}

// Served returns how well the proxies follow the picker.
func (p *Processor) Served() ServedStatus {
	s := ServedStatus{Problem: p.served.Problem()}
	s.Chosen, s.Next, s.Unnamed, s.Unknown = p.served.Counts()
	return s
}

// noteServed compares the serving endpoint with the chosen one, once per request.
func (st *stream) noteServed() {
	if st.decision == nil || st.back.status < 100 {
		return
	}
	by, warn := st.p.served.Add(st.sent, st.back.served, st.p.opts.Now())
	st.p.metrics.served.WithLabelValues(by).Inc()
	if warn {
		st.p.opts.Log.Warn("responses come from endpoints that the picker did not choose", "problem", st.p.served.Problem())
	}
}
