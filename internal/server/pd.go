package server

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// PDStatus is the state of prefill and decode on separate endpoints.
type PDStatus struct {
	Roles     map[string]int   `json:"roles"`               // endpoints by the value of the role label, "none" without one
	Revisions []RevisionStatus `json:"revisions,omitempty"` // by name; empty if no endpoint has one
	picker.SplitCounts
	Share float64      `json:"split_share"`     // of the requests whose prompt another endpoint could compute
	Pairs []PairStatus `json:"pairs,omitempty"` // pairs that are off first, then by number of requests
	More  int          `json:"more_pairs,omitempty"`
}

// RevisionStatus counts the endpoints of one revision.
type RevisionStatus struct {
	Revision string `json:"revision"` // "" without a label
	Prefill  int    `json:"prefill"`
	Decode   int    `json:"decode"`
	Encode   int    `json:"encode"`
	// Complete means that prompts can be split within the revision.
	Complete bool `json:"complete"`
}

// revisions counts the endpoints of each revision. It returns nil if none has one.
func revisions(eps []*endpoint.Endpoint) []RevisionStatus {
	by, labelled := map[string]*RevisionStatus{}, false
	for _, ep := range eps {
		r := by[ep.Revision]
		if r == nil {
			r = &RevisionStatus{Revision: ep.Revision}
			by[ep.Revision] = r
		}
		labelled = labelled || ep.Revision != ""
		for _, of := range []struct {
			role  endpoint.Role
			count *int
		}{{endpoint.RolePrefill, &r.Prefill}, {endpoint.RoleDecode, &r.Decode}, {endpoint.RoleEncode, &r.Encode}} {
			if ep.Role&of.role != 0 {
				*of.count++
			}
		}
	}
	if !labelled {
		return nil
	}
	shared := by[""] // endpoints without a label pair with all
	list := make([]RevisionStatus, 0, len(by))
	for _, name := range slices.Sorted(maps.Keys(by)) {
		r := *by[name]
		p, d := r.Prefill, r.Decode
		if shared != nil && name != "" {
			p, d = p+shared.Prefill, d+shared.Decode
		}
		r.Complete = p > 0 && d > 0
		list = append(list, r)
	}
	return list
}

// PairStatus is what a pair of prefill and decode endpoints has achieved.
type PairStatus struct {
	Prefill  string  `json:"prefill"`
	Decode   string  `json:"decode"`
	State    string  `json:"state"` // works, or why the pair is off
	Last     string  `json:"last_failure,omitempty"`
	Worked   int64   `json:"worked"` // split requests that the prefill endpoint computed
	Failed   int64   `json:"failed"` // those that the decode endpoint computed
	Success  float64 `json:"success"`
	GainedS  float64 `json:"gained_s"`              // of all requests, negative if lost
	AverageS float64 `json:"average_gain_s"`        // of a request of late, with the delay that others are spared
	Compared int     `json:"compared_first_tokens"` // requests in the average
}

// Limits of a status.
const (
	maxPairs       = 50
	maxDifferences = 1000
)

// pdStatus returns nil for a pool without roles that has split no request.
func pdStatus(pool *endpoint.Pool, splits picker.SplitCounts) *PDStatus {
	eps := pool.Snapshot().Endpoints
	st := &PDStatus{Roles: roleCounts(eps), Revisions: revisions(eps), SplitCounts: splits}
	considered := st.Split + st.Whole
	if st.Roles["none"] == len(eps) && considered == 0 {
		return nil
	}
	if considered > 0 {
		st.Share = float64(st.Split) / float64(considered)
	}
	st.Pairs = pairs(pool)
	if n := len(st.Pairs); n > maxPairs {
		st.Pairs, st.More = st.Pairs[:maxPairs], n-maxPairs
	}
	return st
}

// roleCounts counts endpoints by their role label.
func roleCounts(eps []*endpoint.Endpoint) map[string]int {
	roles := map[string]int{}
	for _, ep := range eps {
		role, has := ep.Label(endpoint.LabelRole)
		switch {
		case !has:
			role = "none"
		case !slices.Contains(knownRoles, role):
			role = "unknown"
		}
		roles[role]++
	}
	return roles
}

// pairs returns the pairs that split requests have used.
func pairs(pool *endpoint.Pool) (list []PairStatus) {
	snapshot := pool.Snapshot()
	for _, r := range pool.Splits().Records() {
		from, to := snapshot.ByID(int(r.From)), snapshot.ByID(int(r.To))
		if from == nil || to == nil {
			continue
		}
		p := PairStatus{
			Prefill: from.Address, Decode: to.Address, State: r.Fault.String(), Worked: r.Worked, Failed: r.Failed, Success: r.Success,
			GainedS: r.Gained, AverageS: r.Gain, Compared: r.Compared,
		}
		if r.Last != endpoint.PairWorks {
			p.Last = r.Last.String()
		}
		list = append(list, p)
	}
	works := endpoint.PairWorks.String()
	slices.SortFunc(list, func(a, b PairStatus) int {
		if (a.State == works) != (b.State == works) {
			if a.State == works {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(b.Worked+b.Failed, a.Worked+a.Failed), cmp.Compare(a.Prefill, b.Prefill), cmp.Compare(a.Decode, b.Decode))
	})
	return list
}

// half is an endpoint with the properties that must match within a pair.
type half struct {
	ep        *endpoint.Endpoint
	model     string
	version   string // "": unknown
	blockSize int    // 0: unknown
}

// differences lists the pairs of prefill and decode endpoints of one model whose versions or block
// sizes differ, with an item per difference. version returns the version of an engine, "" if unknown.
func differences(eps []*endpoint.Endpoint, version func(block.EndpointID) string) (list []problems.Item) {
	var prefills, decodes []half
	for _, ep := range eps {
		h := half{ep: ep, model: ep.Base(), version: version(ep.ID), blockSize: ep.Gauges().BlockSize}
		if ep.Role&endpoint.RolePrefill != 0 {
			prefills = append(prefills, h)
		}
		if ep.Role&endpoint.RoleDecode != 0 {
			decodes = append(decodes, h)
		}
	}
	for i := range prefills {
		for k := range decodes {
			p, d := &prefills[i], &decodes[k]
			if p.ep == d.ep || p.model != d.model {
				continue
			}
			if len(list) >= maxDifferences {
				return list
			}
			pair := p.ep.Address + " and " + d.ep.Address
			if p.version != "" && d.version != "" && p.version != d.version {
				list = append(list, problems.Item{Subject: pair, Detail: fmt.Sprintf("versions %s and %s", p.version, d.version)})
			}
			if p.blockSize > 0 && d.blockSize > 0 && p.blockSize != d.blockSize {
				list = append(list, problems.Item{Subject: pair, Detail: fmt.Sprintf("blocks of %d and %d tokens", p.blockSize, d.blockSize)})
			}
		}
	}
	return list
}

// pdCollector exports roles and pairs.
type pdCollector struct {
	pool         *endpoint.Pool
	roles, pairs *prometheus.Desc
}

func newPDCollector(pool *endpoint.Pool) *pdCollector {
	return &pdCollector{
		pool:  pool,
		roles: prometheus.NewDesc("grapevine_pd_endpoints", "Endpoints by the value of the role label: none without a label, unknown for a misspelt or empty one.", []string{"role"}, nil),
		pairs: prometheus.NewDesc("grapevine_pd_pairs", "Pairs of prefill and decode endpoints that split requests have used, by state: works, or why the pair is off.", []string{"state"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *pdCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.roles, c.pairs} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *pdCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), label)
	}
	eps := c.pool.Snapshot().Endpoints
	for role, n := range roleCounts(eps) {
		gauge(c.roles, n, role)
	}
	var states [endpoint.NumPairFaults]int
	known := func(id block.EndpointID) bool { return c.pool.Snapshot().ByID(int(id)) != nil }
	for _, r := range c.pool.Splits().Records() {
		if known(r.From) && known(r.To) {
			states[r.Fault]++
		}
	}
	for fault, n := range states {
		gauge(c.pairs, n, endpoint.PairFault(fault).String())
	}
}
