package remotecluster

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/picker/cycle"
)

// counts are the exported counters.
type counts struct{ sent, failed, hopped, badHops, asked, unasked atomic.Uint64 }

// Status is one cluster as decisions see it.
type Status struct {
	Cluster   string  `json:"cluster"`
	Result    string  `json:"result"` // for a request whose route names it: candidate, or why not
	Gateways  int     `json:"gateways"`
	Endpoints int     `json:"direct_endpoints,omitempty"`
	RoundTrip float64 `json:"round_trip_ms"`
	Late      float64 `json:"late_ms,omitempty"`
	MissRate  float64 `json:"doubt,omitempty"`    // fraction of announced prefixes that were recently missing
	Sending   bool    `json:"sending"`            // requests were sent there recently
	Trial     bool    `json:"on_trial,omitempty"` // candidate on trial after a failure, a refusal or a late answer
}

// Status returns all clusters that export the pool.
func (f *Fleet) Status(now time.Time) (out []Status) {
	ask := Ask{Named: true}
	for _, s := range f.table.Load().sides {
		q := f.quote(s, &ask, now)
		st := s.state(now, s.ReceivedAt, f.o.Margin.Hold)
		row := Status{Cluster: s.Cluster, Result: q.Reason.String(), Gateways: len(s.gateways), Endpoints: len(s.direct), RoundTrip: 1e3 * s.roundTrip(), Late: 1e3 * st.late, MissRate: st.missing, Sending: st.open}
		switch {
		case q.Reason == cycle.RemoteCostlier && len(s.gateways)+len(s.direct) == 0:
			row.Result = "no address"
		case q.Reason == cycle.RemoteCostlier:
			row.Result, row.Trial = "candidate", st.trial
		}
		out = append(out, row)
	}
	return out
}

// Register registers the metrics.
func (f *Fleet) Register(reg prometheus.Registerer) error {
	for _, m := range []struct {
		name, help string
		v          *atomic.Uint64
	}{
		{"sent_total", "Requests sent to another cluster.", &f.counts.sent},
		{"failed_total", "Requests sent to another cluster that failed there.", &f.counts.failed},
		{"hopped_total", "Requests from another cluster with a valid hop token, or with any token if there is no secret to verify it.", &f.counts.hopped},
		{"bad_hops_total", "Requests with an invalid hop token; they are served here.", &f.counts.badHops},
		{"asked_total", "Requests whose endpoint in another cluster was chosen by a picker there.", &f.counts.asked},
		{"unasked_total", "Requests sent to another cluster's gateway because no picker there could be asked or returned an endpoint.", &f.counts.unasked},
	} {
		c := prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "grapevine_elsewhere_" + m.name, Help: m.help}, func() float64 { return float64(m.v.Load()) })
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}
